"""How long a request to an object store may take, by options of its URI.

They are in the URI, as the other options of a store: so they reach workers, executors of Spark, the
data source and the commands that messages advise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kdump.errors import UsageProblem

TIMEOUT_OPTION: Final = "timeout"
LOWEST_RATE_OPTION: Final = "lowest_rate"
_OPTIONS: Final = frozenset({TIMEOUT_OPTION, LOWEST_RATE_OPTION})
_LARGEST: Final = 10**9
_TIMEOUTS_OF_A_LISTING: Final = 60


class StoreLimits(Struct, frozen=True):
    """When kdump gives up a request; the default is for stores that work.

    Attributes:
        timeout_s: for a request that is not answered, with all repetitions.
        lowest_rate: bytes a second that an answer has at least, on average.
    """

    timeout_s: int = 60
    lowest_rate: int = 10_240

    @classmethod
    def of(cls, options: str, name: str) -> StoreLimits:
        """The limits that the options of a URI set.

        Args:
            options: as after the question mark; others are not looked at.
            name: the store in messages.

        Raises:
            UsageProblem: one is no number from 1 on.
        """
        found = {}
        for option in _each(options):
            key, _, value = option.partition("=")
            if key not in _OPTIONS:
                continue
            is_number = value.isascii() and value.isdigit() and len(value) <= len(str(_LARGEST))
            if not is_number or not 1 <= int(value) <= _LARGEST:
                unit = "seconds" if key == TIMEOUT_OPTION else "bytes a second"
                raise UsageProblem(f"{name}: {key}={value}: not a number of {unit}, from 1 on")
            found[key] = int(value)
        default = cls()
        return cls(
            found.get(TIMEOUT_OPTION, default.timeout_s),
            found.get(LOWEST_RATE_OPTION, default.lowest_rate),
        )

    def seconds_for(self, answer_bytes: int) -> float:
        """How long a request may take whose answer has so many bytes."""
        return self.timeout_s + answer_bytes / self.lowest_rate

    def seconds_of_attempt(self, attempts: int) -> float:
        """How long each attempt may take: all fit into the time-out, with the pauses between."""
        return max(1.0, self.timeout_s / (attempts + 1))

    @property
    def listing_s(self) -> int:
        """How long a listing may take, which has any number of pages."""
        return self.timeout_s * _TIMEOUTS_OF_A_LISTING


def without_limits(options: str) -> str:
    """The options of a URI that are for the client of the store."""
    return "&".join(each for each in _each(options) if each.partition("=")[0] not in _OPTIONS)


def _each(options: str) -> Iterable[str]:
    return filter(None, options.split("&"))
