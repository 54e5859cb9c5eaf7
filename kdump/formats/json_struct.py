"""Structs as objects of JSON documents: what a field may hold is declared once, by its type.

``str``, ``bool``
    The same in JSON.
``int``
    A number from 0 to the greatest that Kafka can store, or in another range:
    ``Annotated[int, number(...)]``, :data:`Int32`.
``Mapping[str, Any]``
    An object with any fields.
A struct, or a named tuple
    An object with its fields, and no others unless it is open: programs of other versions may have
    written more.
``tuple[T, ...]``
    A list.
``T | None``
    Null, too.
``Annotated[T, Form(...)]``
    What the form reads and writes.
``Annotated[T, LATER]``
    Missing while it is false or empty: earlier versions had no such field.
"""

from __future__ import annotations

import collections.abc
import functools
import types
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats.json_document import (
    LEAST_TIME_NS,
    MOST,
    MOST_INT32,
    MOST_TIME_NS,
    JsonObject,
    checked_flag,
    checked_integer,
    checked_number,
    checked_text,
    checked_uuid,
    checked_word,
    elements,
)

Object = TypeVar("Object")
Reader: TypeAlias = Callable[[Any, str], Any]
"""Takes what :mod:`json` has read, and its path; raises ``DocumentError`` for something else."""


class Form(Struct, frozen=True):
    """How a value is read and written.

    Attributes:
        read: makes it of JSON.
        write: makes JSON of it; None if it is that.
        may_be_missing: whether it is missing while it is false or empty.
    """

    read: Reader
    write: Callable[[Any], Any] | None = None
    may_be_missing: bool = False


LATER: Final = object()
"""Marks a field that may be missing."""


def number(least: int = 0, most: int = MOST) -> Form:
    """An integer in a range."""
    return Form(lambda value, where: checked_number(value, where, least=least, most=most))


def word(words: Mapping[str, Any]) -> Form:
    """One of some words, as what it stands for."""
    of = {value: each for each, value in words.items()}
    return Form(lambda value, where: checked_word(value, where, words), of.__getitem__)


Integer: TypeAlias = Annotated[int, Form(checked_integer)]
"""Of any size."""
TimeNs: TypeAlias = Annotated[int, number(LEAST_TIME_NS, MOST_TIME_NS)]
"""The time of a file: any that a disk can have."""
Int16: TypeAlias = Annotated[int, number(most=(1 << 15) - 1)]
Int32: TypeAlias = Annotated[int, number(most=MOST_INT32)]
Uuid: TypeAlias = Annotated[str, Form(checked_uuid)]
"""As Kafka writes it."""


def decode_struct(
    kind: Callable[..., Object],
    document: JsonObject,
    besides: Collection[str] = (),
    *,
    is_open: bool = False,
) -> Object:
    """The struct of an object.

    Args:
        kind: the class of the struct, or of the named tuple.
        besides: fields that the document has, and the struct has not.
        is_open: whether it may have any others, too, and so may the objects in it.

    Raises:
        DocumentError: it is not one; the message names the field.
    """
    forms = _forms_of(kind, is_open)
    if not is_open:
        document.has_only({*forms, *besides})
    fields = {
        name: form.read(document.value(name), document.path(name))
        for name, form in forms.items()
        if not form.may_be_missing or name in document.fields
    }
    return kind(**fields)


def encode_struct(value: Struct | tuple[Any, ...]) -> dict[str, Any]:
    """The object of a struct."""
    return {
        name: _written(form, getattr(value, name))
        for name, form in _forms_of(type(value), False).items()
        if not form.may_be_missing or getattr(value, name)
    }


def _written(form: Form, value: Any) -> Any:
    return value if form.write is None else form.write(value)


@functools.cache
def _forms_of(kind: Any, is_open: bool) -> dict[str, Form]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _form_of(hint, is_open) for name, hint in hints.items()}


def _form_of(hint: Any, is_open: bool) -> Form:
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        own = next((each for each in arguments if isinstance(each, Form)), None)
        form = own or _form_of(arguments[0], is_open)
        return replace(form, may_be_missing=True) if LATER in arguments else form
    if isinstance(hint, types.UnionType) or types.NoneType in arguments:
        return _or_null(_form_of(arguments[0], is_open))
    if get_origin(hint) is tuple:
        return _list_of(_form_of(arguments[0], is_open))
    return _PLAIN.get(get_origin(hint) or hint) or Form(
        lambda value, where: decode_struct(hint, JsonObject.of(value, where), is_open=is_open),
        encode_struct,
    )


def _or_null(form: Form) -> Form:
    return Form(
        lambda value, where: None if value is None else form.read(value, where),
        form.write and (lambda value: None if value is None else _written(form, value)),
    )


def _list_of(form: Form) -> Form:
    return Form(
        lambda value, where: tuple(form.read(*each) for each in elements(value, where)),
        lambda values: [_written(form, each) for each in values],
    )


_PLAIN: Final = {
    str: Form(checked_text),
    bool: Form(checked_flag),
    int: number(),
    collections.abc.Mapping: Form(lambda value, where: JsonObject.of(value, where).fields),
}
