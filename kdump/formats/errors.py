"""The errors of the formats layer."""

from __future__ import annotations


class FormatError(ValueError):
    """Bytes that cannot be what they claim to be.

    Attributes:
        what: the sentence for people, without place (``"record length reaches past its batch"``).
        position: the byte at which it was noticed, counted from the start of the bytes that the
            decoder was given; callers that know more shift it with :meth:`shifted`.
        expected: what would have been right, where that can be said.
        found: what is there instead.
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
        # Jobs hand errors from worker to driver; by default an exception is pickled by its
        # positional arguments, of which there is one.
        return type(self), (self.what,), self.__dict__

    def as_value(self) -> FormatError:
        """The same error without the frames it was raised in, which hold the bytes they read.

        Whoever keeps an error in what it gives keeps this: the frames would live as long, and as
        they know the error in turn, until the garbage collector comes by.
        """
        return self.shifted(0)

    def shifted(self, by_bytes: int) -> FormatError:
        """The same error, its position counted from ``by_bytes`` earlier."""
        return type(self)(
            self.what,
            position=self.position + by_bytes,
            expected=self.expected,
            found=self.found,
        )

    def __str__(self) -> str:
        text = f"{self.what} at byte {self.position}"
        if self.expected is not None:
            text += f", expected {self.expected}"
        if self.found is not None:
            text += f", found {self.found}"
        return text


class OverLimitError(FormatError):
    """Data that may well be valid, but is larger than whoever reads it is willing to hold."""


class FillError(FormatError):
    """Records that do not fill their batch: they end before it does, or it ends before them."""
