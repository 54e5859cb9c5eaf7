"""The options that mask records instead of erasing them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from kdump.cli.options.conflicts import require_at_most_one, require_with
from kdump.cli.options.named_records import NamedArguments
from kdump.cli.options.option_group import option_group
from kdump.errors import UsageProblem, reason_of
from kdump.storage.local_disk import local

if TYPE_CHECKING:
    from kdump.repair.erase.mask import Mask
    from kdump.repair.erase.named_records import NamedRecords

_LEAST_SECRET_BYTES: Final = 16
"""Shorter secrets can be tried out."""


class MaskArguments(Struct, frozen=True):
    """These options as given on the command line.

    Attributes:
        is_given: whether records are masked.
        secret_file: a file with the secret of the hashes.
    """

    is_given: bool
    secret_file: Path | None

    def require_once(self, named: NamedArguments) -> None:
        """Refuse records that are still named when they are masked: they would be masked again.

        Raises:
            UsageProblem: they are not; or the options contradict each other.
        """
        if not self.is_given:
            require_with("--mask", {"--mask-secret": self.secret_file is not None})
            return
        require_at_most_one({"--mask": True, "--key-prefix": named.prefixes})
        require_at_most_one({"--mask": True, "--offsets": named.offsets_file is not None})

    def read(self, named: NamedRecords) -> Mask | None:
        """Read the secret; return what masks records, or None if they are erased.

        Raises:
            UsageProblem: the secret cannot be used, or the keys cannot be masked.
        """
        from kdump.repair.erase.mask import Mask

        if not self.is_given:
            return None
        mask = Mask() if self.secret_file is None else Mask(_secret_in(self.secret_file))
        mask.require_other_keys(named.keys)
        return mask


def _secret_in(path: Path) -> bytes:
    try:
        secret = local(str(path)).read()
    except OSError as failure:
        raise UsageProblem(f"{path}: cannot be read: {reason_of(failure)}") from failure
    if len(secret) < _LEAST_SECRET_BYTES:
        raise UsageProblem(f"{path}: has less than {_LEAST_SECRET_BYTES} bytes, and can be guessed")
    return secret


mask_options: Final = option_group(
    "mask",
    MaskArguments,
    click.option(
        "--mask",
        "is_given",
        is_flag=True,
        help="Keep the records, but replace their keys by hashes, and overwrite values and"
        " header values.",
    ),
    click.option(
        "--mask-secret",
        "secret_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="With --mask, hash keys with the secret in FILE.",
    ),
)
"""Adds the options, as the argument ``mask``: :class:`MaskArguments`."""
