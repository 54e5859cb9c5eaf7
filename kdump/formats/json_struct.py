"""Structs as objects of JSON documents: what a field may hold is declared once, by its type.

``str``, ``bool``
    The same in JSON.
``int``
    A number from 0 to the greatest that Kafka can store, or in another range:
    ``Annotated[int, number(...)]``, :data:`Int32`.
``Mapping[str, Any]``
    An object with any fields.
A struct
    An object with the fields of the struct, and no others.
``tuple[T, ...]``
    A list.
``T | None``
    Null, too.
``Annotated[T, Form(...)]``
    What the form reads and writes.
"""

from __future__ import annotations

import collections.abc
import functools
import types
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from kdump.formats.json_document import (
    MOST,
    MOST_INT32,
    JsonObject,
    checked_flag,
    checked_number,
    checked_text,
    checked_uuid,
    checked_word,
    elements,
)

Object = TypeVar("Object", bound=Struct)
Reader: TypeAlias = Callable[[Any, str], Any]
"""Takes what :mod:`json` has read, and its path; raises ``DocumentError`` for something else."""


class Form(Struct, frozen=True):
    """How a value is read and written.

    Attributes:
        read: makes it of JSON.
        write: makes JSON of it; None if it is that.
    """

    read: Reader
    write: Callable[[Any], Any] | None = None


def number(least: int = 0, most: int = MOST) -> Form:
    """An integer in a range."""
    return Form(lambda value, where: checked_number(value, where, least=least, most=most))


def word(words: Mapping[str, Any]) -> Form:
    """One of some words, as what it stands for."""
    of = {value: each for each, value in words.items()}
    return Form(lambda value, where: checked_word(value, where, words), of.__getitem__)


Int16: TypeAlias = Annotated[int, number(most=(1 << 15) - 1)]
Int32: TypeAlias = Annotated[int, number(most=MOST_INT32)]
Uuid: TypeAlias = Annotated[str, Form(checked_uuid)]
"""As Kafka writes it."""


def decode_struct(
    kind: type[Object], document: JsonObject, besides: Collection[str] = ()
) -> Object:
    """The struct of an object.

    Args:
        besides: fields that the document has, and the struct has not.

    Raises:
        DocumentError: it is not one; the message names the field.
    """
    forms = _forms_of(kind)
    document.has_only({*forms, *besides})
    fields = {
        name: form.read(document.value(name), document.path(name)) for name, form in forms.items()
    }
    return kind(**fields)


def encode_struct(value: Struct) -> dict[str, Any]:
    """The object of a struct."""
    forms = _forms_of(type(value)).items()
    return {name: _written(form, getattr(value, name)) for name, form in forms}


def _written(form: Form, value: Any) -> Any:
    return value if form.write is None else form.write(value)


@functools.cache
def _forms_of(kind: type[Struct]) -> dict[str, Form]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _form_of(hint) for name, hint in hints.items()}


def _form_of(hint: Any) -> Form:
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        return next(each for each in arguments if isinstance(each, Form))
    if isinstance(hint, types.UnionType) or types.NoneType in arguments:
        return _or_null(_form_of(arguments[0]))
    if get_origin(hint) is tuple:
        return _list_of(_form_of(arguments[0]))
    return _PLAIN.get(get_origin(hint) or hint) or Form(
        lambda value, where: decode_struct(hint, JsonObject.of(value, where)), encode_struct
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
