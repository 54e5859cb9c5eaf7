"""The errors of the formats layer."""

from __future__ import annotations


def expected_and_found(expected: object, found: object) -> str:
    """The end of a message: what was expected and found, as far as that can be said."""
    text = "" if expected is None else f", expected {expected}"
    return text if found is None else f"{text}, found {found}"


class FormatError(ValueError):
    """Bytes that are not in the format that they should be in.

    Attributes:
        what: a sentence for people, without the place (``"record length reaches past its batch"``).
        position: the byte at which it was noticed, counted from the first byte that the decoder was
            given; callers shift it with :meth:`shifted`.
        expected: what would have been right, where that can be said.
        found: the actual value.
    """

    def __init__(
        self,
        what: str,
        *,
        position: int = 0,
        expected: object | None = None,
        found: object | None = None,
    ) -> None:
        super().__init__(what, position, expected, found)
        self.what = what
        self.position = position
        self.expected = expected
        self.found = found

    def __reduce__(self) -> tuple[object, ...]:
        # Jobs send errors from worker to driver. By default an exception is pickled by its
        # positional arguments; there is only one.
        return type(self), (self.what,), self.__dict__

    def as_value(self) -> FormatError:
        """Give the same error without the stack frames, which hold the bytes that they read.

        Keep this one in a result: otherwise the frames live as long as the result, and in a cycle
        with the error, until the garbage collector runs.
        """
        return self.shifted(0)

    def shifted(self, by_bytes: int) -> FormatError:
        """Give the same error with its position counted from ``by_bytes`` earlier."""
        return type(self)(
            self.what,
            position=self.position + by_bytes,
            expected=self.expected,
            found=self.found,
        )

    def __str__(self) -> str:
        return f"{self.what} at byte {self.position}{expected_and_found(self.expected, self.found)}"


class OverLimitError(FormatError):
    """Data that may be valid, but is larger than the reader's limit."""


class FillError(FormatError):
    """Records that do not fill their batch: they end before it does, or it ends before them."""
