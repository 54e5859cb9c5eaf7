"""What older copies of the metadata have and the chosen one has not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.evidence import Evidence, MetadataEvidence, place_of
from kdump.repair.cluster.notice_codes import Notices
from kdump.state.metadata.metadata_image import EntityKind, MetadataImage

_KINDS: Final = (
    *(EntityKind.ACL, EntityKind.SCRAM, EntityKind.QUOTA, EntityKind.TOKEN, EntityKind.FEATURE),
    EntityKind.CONFIG,
)


def report_old_copies(
    evidence: Evidence,
    copy: MetadataEvidence | None,
    topics: Collection[str],
    notices: Notices,
) -> None:
    """Report properties, ACLs and the like that only copies have which were not chosen.

    An older copy of the same log is the beginning of the chosen one, so somebody removed them.
    They count as lost all the same, unless the removal is known to be committed: the end of a copy
    may never have been, and damage may have cut records out of it.

    Args:
        evidence: with all copies.
        copy: the chosen one.
        topics: names of the topics in the plan; configurations of others do not matter.
        notices: takes what is found.
    """
    if copy is None:
        return
    committed = copy.metadata.committed_end_offset
    if committed is not None and committed >= copy.end.offset and not copy.metadata.problems:
        return
    reported: set[str] = set()
    for other in evidence.copies:
        if other is copy:
            continue
        for what, topic, override in _missing(other.image, copy.image, topics):
            if what not in reported:
                reported.add(what)
                notices.add(
                    notice_codes.OLD_COPY_ONLY,
                    f"{what}: in the copy of {place_of(other.directory)}, which ends at"
                    f" {other.end.offset}",
                    topic,
                    override=override or f"copy={other.directory.node_id}",
                )


def _missing(
    old: MetadataImage, new: MetadataImage, topics: Collection[str]
) -> Iterator[tuple[str, str | None, str | None]]:
    """What an old image has and a new one has not; its topic, and the ``--set`` that adds it."""
    for kind in _KINDS:
        before, after = old.of(kind), new.of(kind)
        for key in sorted(before, key=repr):
            topic = str(key).removeprefix("topic:") if kind is EntityKind.CONFIG else None
            is_topic = kind is EntityKind.CONFIG and str(key).startswith("topic:")
            if is_topic and topic not in topics:
                continue
            if kind in (EntityKind.CONFIG, EntityKind.QUOTA):
                values = after.get(key, {})
                for name in sorted(set(before[key]) - set(values)):
                    what = f"{kind.value} {_name(key)}: {name}"
                    if is_topic:
                        yield what, topic, f"topic.{topic}.config.{name}={before[key][name]}"
                    else:
                        yield what, None, None
            elif key not in after:
                yield f"{kind.value} {_entity_name(kind, key, before[key])}", None, None


def _name(key: Any) -> str:
    if isinstance(key, tuple):
        return ", ".join(f"{part}={'<default>' if name is None else name}" for part, name in key)
    return str(key)


def _entity_name(kind: EntityKind, key: Any, value: Any) -> str:
    if kind is EntityKind.ACL:
        return (
            f"{value.permission_type} {value.principal} {value.operation} on"
            f" {value.resource_type} {value.resource_name}"
        )
    return " ".join(key) if isinstance(key, tuple) else str(key)
