"""Options for the dump of an index."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

DEFAULT_MAX_MESSAGE_SIZE_BYTES: Final = 5 * 1024 * 1024


class IndexDumpOptions(Struct, frozen=True):
    """The official tool's options that matter to indexes.

    Attributes:
        verify_index_only: check the entries against the log, print none.
        index_sanity_check: only check what a starting broker checks to decide whether to rebuild an
            index.
        max_message_size_bytes: largest size of a batch that an entry points to.
    """

    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_message_size_bytes: int = DEFAULT_MAX_MESSAGE_SIZE_BYTES
