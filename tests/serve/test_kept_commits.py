"""What clients commit is bounded, however long their texts and names are."""

from __future__ import annotations

import tracemalloc

import pytest
from kio.schema.errors import ErrorCode

from kdump.formats.names import TopicPartition
from kdump.serve import live_groups
from kdump.serve.classic_groups import ClassicGroup, LiveMember
from kdump.serve.group_refusal import GroupRefusal
from kdump.serve.kept_commits import KeptCommits, ServedOffset
from kdump.serve.live_groups import LiveGroups

MOST_BYTES = 1 << 20


@pytest.mark.parametrize("text", ["", "x" * 4096, "\N{SNOWMAN}" * 4096])
@pytest.mark.parametrize("name", ["g", "g" * 30_000])
def test_commits_take_about_as_much_as_they_may(name: str, text: str) -> None:
    commits = KeptCommits(MOST_BYTES)
    tracemalloc.start()
    kept = [
        commits.keep(
            f"{name}{number}", TopicPartition("orders", number), ServedOffset(number, 0, f"{text}-")
        )
        for number in range(2000)
    ]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1.2 * MOST_BYTES
    count = sum(kept)
    assert 0 < count < len(kept)
    assert len(list(commits)) == count


def test_a_commit_takes_the_place_of_an_earlier_one() -> None:
    commits, key = KeptCommits(2000), TopicPartition("orders", 0)
    assert all(commits.keep("g", key, ServedOffset(each)) for each in range(100))
    assert commits.of("g") == {key: ServedOffset(99)}
    assert not commits.keep("g", key, ServedOffset(100, 0, "x" * 2000))
    assert commits.of("g") == {key: ServedOffset(99)}


def test_names_of_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_groups, "_LARGEST_NAMES", 100)
    groups = LiveGroups({"a" * 60: ClassicGroup("a" * 60)})
    with pytest.raises(GroupRefusal) as refused:
        groups.classic_to_join("b" * 60)
    assert refused.value.error is ErrorCode.group_max_size_reached


def test_what_all_members_say_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_groups, "_LARGEST_MEMBERS_BYTES", 100)
    member = LiveMember("m", None, "", "/", 10.0, 10.0, {"range": bytes(20)}, assignment=bytes(35))
    groups = LiveGroups({"a": ClassicGroup("a", members={"m": member})})
    groups.require_room(40)
    with pytest.raises(GroupRefusal):
        groups.require_room(41)
