"""The words for what happens to a cluster."""

from typing import Final

EVENTS: Final = (
    *("created", "recreated", "deleted"),
    *("added", "reassigning", "reassigned", "reassignment_cancelled"),
    *("elected", "leaderless", "recovered", "isr_changed", "directories_changed"),
    *("reconfigured", "registered", "unregistered", "fenced", "unfenced", "shutting_down"),
    *("changed", "removed", "enabled", "disabled", "renewed"),
)
"""All words for events in :mod:`kdump.state.metadata.metadata_history`."""
