"""Which features a plan finalizes: those of the copy, and guesses where there is none."""

from __future__ import annotations

from typing import Final

from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.evidence import Evidence, MetadataEvidence, place_of
from kdump.repair.cluster.notice_codes import Notices
from kdump.repair.cluster.overrides import Overrides
from kdump.state.cluster_plan import PlannedFeature, Source, SourceKind
from kdump.state.metadata_image import KRAFT_VERSION, METADATA_VERSION, EntityKind

_GUESSED: Final = {METADATA_VERSION: 25, "group.version": 1, "transaction.version": 2}
"""4.0-IV3, which all brokers since 4.0 know, with its other features."""
_SHARE_VERSION: Final = "share.version"
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

    Brokers refuse every request of share groups without share.version 1. It needs no higher
    metadata.version: ``ShareVersion.SV_1`` has no dependencies. (New clusters have it from 4.2-IV0
    on, which brokers of 4.1 do not know, although they know share.version.)
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
    place = _share_state_place(evidence)
    if place is not None and _SHARE_VERSION not in {*levels, *overrides.features}:
        levels[_SHARE_VERSION] = (1, Source(SourceKind.GUESS, f"{_SHARE_STATE_TOPIC} on {place}"))
        notices.add(
            notice_codes.FEATURES,
            f"{_SHARE_VERSION}=1: there were share groups, {place} has {_SHARE_STATE_TOPIC}",
            override=f"feature.{_SHARE_VERSION}=LEVEL",
        )
    return levels


def _share_state_place(evidence: Evidence) -> str | None:
    """The first log directory with a partition of the state of share groups."""
    numbers = evidence.replicas.get(_SHARE_STATE_TOPIC, {})
    return next((place_of(numbers[each][0].directory) for each in sorted(numbers)), None)
