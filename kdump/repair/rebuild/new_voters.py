"""The voters that a user names for a new quorum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kdump.errors import UsageProblem
from kdump.formats.directory_ids import is_reserved
from kdump.formats.dynamic_voter import DynamicVoter
from kdump.formats.uuids import format_uuid


def require_distinct(voters: Sequence[DynamicVoter]) -> None:
    """Refuse voters that ``DynamicVoters.parse`` refuses, and reserved directory ids.

    Raises:
        UsageProblem: two have one node id or one directory id.
    """
    nodes = Counter(each.node_id for each in voters)
    directories = Counter(each.directory_id for each in voters if each.directory_id is not None)
    for node_id, count in nodes.items():
        if count > 1:
            raise UsageProblem(f"{count} voters have the node id {node_id}")
    for directory_id, count in directories.items():
        if count > 1:
            raise UsageProblem(f"{count} voters have the directory id {format_uuid(directory_id)}")
        if is_reserved(directory_id):
            raise UsageProblem(f"Kafka reserves the directory id {format_uuid(directory_id)}")
