"""Damage of a partition is counted once, though two readings of a log find it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kdump.log.valid_windows import Damage
from kdump.tables.kafka_log.damage import CountedDamage

MOST = 3


def damage_at(place: int) -> Damage:
    return Damage(f"/logs/a-0/{place // 10:020d}.log", place % 10, place % 10 + 1, "bad")


@given(
    st.lists(st.integers(0, 60), unique=True).map(sorted),
    st.sets(st.integers(61, 90)),
    st.lists(st.integers(0, 60), max_size=60),
)
def test_each_range_counts_once_however_far_ahead_it_was_found(
    places: list[int], of_records: set[int], ahead: list[int]
) -> None:
    """The second reading is anywhere ahead of the first, and begins again for each range."""
    counted = CountedDamage(MOST)
    for number, place in enumerate(places):
        for each in places[number : number + (ahead[number] if number < len(ahead) else 0)]:
            counted.add(damage_at(each))
        counted.add(damage_at(place))
    for place in of_records:
        counted.add_other(damage_at(place))

    everything = [*places, *sorted(of_records)]
    assert len(counted.listed()) + counted.more == len(everything)
    assert len(counted.listed()) == min(MOST, len(everything))
    assert counted.listed()[: len(places)] == [damage_at(place) for place in places[:MOST]]
