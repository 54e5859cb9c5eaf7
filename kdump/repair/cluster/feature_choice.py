"""Which features a plan finalizes: those of the copy, and guesses where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.evidence import Evidence, MetadataEvidence, place_of
from kdump.repair.cluster.notice_codes import Notices
from kdump.repair.cluster.overrides import Overrides
from kdump.state.metadata.cluster_plan import PlannedFeature, Source, SourceKind
from kdump.state.metadata.disk_collection import CollectedDirectory
from kdump.state.metadata.metadata_image import KRAFT_VERSION, METADATA_VERSION, EntityKind

_GUESSED: Final = {METADATA_VERSION: 25, "group.version": 1, "transaction.version": 2}
"""4.0-IV3, which all brokers since 4.0 know, with its other features."""
_SHARE_STATE_TOPIC: Final = "__share_group_state"


def choose_features(
    evidence: Evidence,
    copy: MetadataEvidence | None,
    copy_source: Source,
    overrides: Overrides,
    notices: Notices,
) -> tuple[PlannedFeature, ...]:
    """The levels of all features but kraft.version, by name.

    Args:
        evidence: whose disks show which features were used.
        copy: the chosen copy.
        copy_source: of what it says.
        overrides: decide over all else.
        notices: takes what is guessed.
    """
    levels: dict[str, tuple[int, Source]] = {}
    if copy is not None:
        features = copy.image.of(EntityKind.FEATURE)
        levels = {name: (features[name], copy_source) for name in features if name != KRAFT_VERSION}
    if METADATA_VERSION not in levels:
        levels = _guessed(levels, evidence, overrides, notices)
    for name, level in overrides.features.items():
        levels[name] = (level, Source(SourceKind.SET, "feature"))
    return tuple(PlannedFeature(name, *levels[name]) for name in sorted(levels))


def _guessed(
    known: dict[str, tuple[int, Source]],
    evidence: Evidence,
    overrides: Overrides,
    notices: Notices,
) -> dict[str, tuple[int, Source]]:
    """Add guesses to the levels that are known.

    Brokers refuse every request of share groups without share.version 1, and of streams groups
    without streams.version 1. They need no higher metadata.version: ``ShareVersion.SV_1`` and
    ``StreamsVersion.SV_1`` have no dependencies. (New clusters have them from 4.2-IV0 and 4.2-IV1
    on, which brokers of 4.1 do not know, although they know both features.)
    """
    guess = Source(SourceKind.GUESS, "what brokers since 4.0 know")
    levels = {name: (level, guess) for name, level in _GUESSED.items()} | known
    left = sorted(levels.keys() - overrides.features.keys())
    if left:
        first = METADATA_VERSION if METADATA_VERSION in left else left[0]
        notices.add(
            notice_codes.FEATURES,
            ", ".join(f"{name}={levels[name][0]}" for name in left),
            override=f"feature.{first}=LEVEL",
        )
    for name, groups, what, directory in _group_features(evidence):
        if directory is None or name in {*levels, *overrides.features}:
            continue
        place = place_of(directory)
        levels[name] = (1, Source(SourceKind.GUESS, f"{what} on {place}"))
        notices.add(
            notice_codes.FEATURES,
            f"{name}=1: there were {groups}, {place} has {what}",
            override=f"feature.{name}=LEVEL",
        )
    return levels


def _group_features(
    evidence: Evidence,
) -> Iterator[tuple[str, str, str, CollectedDirectory | None]]:
    """Yield each feature that groups need, their type, what shows them, and the first place."""
    numbers = evidence.replicas.get(_SHARE_STATE_TOPIC, {})
    shared = next((numbers[each][0].directory for each in sorted(numbers)), None)
    yield "share.version", "share groups", _SHARE_STATE_TOPIC, shared
    streams = next((each for each in evidence.directories if each.has_streams_groups), None)
    yield "streams.version", "streams groups", "streams groups in __consumer_offsets", streams
