"""The state of a schema registry from the records of its topic."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from builders.schema_topic import SchemaRecord, compact_json, schema_key, schema_value
from kdump.state.schema_registry import (
    RegistryError,
    RegistryReplay,
    SchemaReference,
    SchemaRegistry,
    stored_schema,
)


def replayed(*records: SchemaRecord | tuple[bytes, bytes | None]) -> SchemaRegistry:
    replay = RegistryReplay()
    for offset, (key, value) in enumerate(records):
        raw_key = key if isinstance(key, bytes) else compact_json(key)
        raw_value = value if value is None or isinstance(value, bytes) else compact_json(value)
        replay.add(raw_key, raw_value, f"offset {offset}")
    return replay.registry()


def version(
    subject: str, number: int, schema_id: int, text: str = '"string"', **others: Any
) -> SchemaRecord:
    return schema_key(subject, number), schema_value(subject, number, schema_id, text, **others)


def tombstone(subject: str, number: int) -> SchemaRecord:
    return schema_key(subject, number), None


def delete_subject(subject: str, up_to: int) -> SchemaRecord:
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return key, {"subject": subject, "version": up_to}


def clear_subject(subject: str) -> SchemaRecord:
    return {"keytype": "CLEAR_SUBJECT", "subject": subject, "magic": 0}, {"subject": subject}


def ids(registry: SchemaRegistry, wanted: Sequence[int]) -> list[str | None]:
    """The texts by id; None where there is none."""
    found: list[str | None] = []
    for schema_id in wanted:
        try:
            found.append(registry.find(schema_id).text)
        except LookupError:
            found.append(None)
    return found


def test_a_schema_is_found_by_its_id_in_every_subject_that_has_it() -> None:
    registry = replayed(version("a", 1, 1), version("b", 3, 1), version("b", 4, 2, '"int"'))
    assert ids(registry, [1, 2, 3]) == ['"string"', '"int"', None]
    assert registry.versions["b", 4].text == '"int"'


def test_a_later_record_of_a_version_wins() -> None:
    registry = replayed(version("a", 1, 1, '"int"'), version("a", 1, 2, '"long"'))
    assert ids(registry, [1, 2]) == [None, '"long"']


def test_deleted_versions_and_subjects_still_resolve() -> None:
    registry = replayed(
        version("a", 1, 1),
        version("a", 1, 1, deleted=True),
        version("b", 1, 2, '"int"'),
        delete_subject("b", 1),
        version("b", 2, 3, '"long"'),
    )
    assert ids(registry, [1, 2, 3]) == ['"string"', '"int"', '"long"']
    assert [each.is_deleted for each in registry.versions.values()] == [True, True, False]


def test_a_version_that_was_deleted_for_good_does_not_resolve_unless_another_subject_has_it() -> (
    None
):
    deleted = [version("a", 1, 1, deleted=True), tombstone("a", 1)]
    assert ids(replayed(*deleted), [1]) == [None]
    assert ids(replayed(version("b", 1, 1), *deleted), [1]) == ['"string"']


def test_an_older_version_of_the_same_schema_can_be_deleted_for_good() -> None:
    registry = replayed(version("a", 1, 1), version("a", 2, 1), tombstone("a", 1))
    assert ids(registry, [1]) == ['"string"']


def test_clearing_a_subject_forgets_its_deleted_versions() -> None:
    registry = replayed(
        version("a", 1, 1), version("a", 2, 2, '"int"'), delete_subject("a", 1), clear_subject("a")
    )
    assert ids(registry, [1, 2]) == [None, '"int"']


def test_clearing_a_context_forgets_the_deleted_versions_of_its_subjects() -> None:
    registry = replayed(
        version(":.x:a", 1, 1),
        version("a", 1, 2),
        delete_subject(":.x:a", 1),
        delete_subject("a", 1),
        clear_subject(":.x:"),
    )
    assert ids(registry, [1, 2]) == [None, '"string"']


def test_an_id_that_is_another_schema_is_left_out_as_by_a_registry() -> None:
    registry = replayed(version("a", 1, 1), version("b", 1, 1, '"int"'))
    assert ids(registry, [1]) == ['"string"']
    (problem,) = registry.problems
    assert problem == (
        "offset 1: version 1 of b has id 1, which is another schema in version 1 of a"
    )


def test_contexts_have_ids_of_their_own() -> None:
    registry = replayed(
        version(":.x:a", 1, 1, '"int"'),
        version("a", 1, 1, '"long"'),
        version(":.x:b", 1, 2, '"double"'),
        version(":.x:c", 1, 3, '"int"'),
        version(":.y:c", 1, 3, '"long"'),
    )
    assert ids(registry, [1, 2]) == ['"long"', '"double"']
    with pytest.raises(LookupError, match=r"id 3 is a different schema in each of .* \.x, \.y"):
        registry.find(3)


def test_a_reference_is_in_the_context_of_the_schema_unless_it_names_one() -> None:
    references = [
        {"name": "p.A", "subject": "a", "version": 1},
        {"name": "p.B", "subject": ":.y:b", "version": 2},
    ]
    registry = replayed(
        version(":.x:a", 1, 1, '"int"'),
        version(":.y:b", 2, 2, '"long"'),
        version(":.x:c", 1, 3, "{}", references=references),
    )
    used = registry.referenced(registry.find(3))
    assert [(name, one.text) for name, one in used] == [("p.A", '"int"'), ("p.B", '"long"')]


def test_references_in_a_circle_are_followed_once() -> None:
    one = version("a", 1, 1, "{}", references=[{"name": "B", "subject": "b", "version": 1}])
    two = version("b", 1, 2, "[]", references=[{"name": "A", "subject": "a", "version": 1}])
    registry = replayed(one, two)
    assert [name for name, _ in registry.referenced(registry.find(1))] == ["B", "A"]


def test_a_missing_reference_is_named() -> None:
    references = [{"name": "B", "subject": "b", "version": 9}]
    registry = replayed(version("a", 1, 1, "{}", references=references))
    with pytest.raises(LookupError, match="version 9 of the subject b, which it uses, is missing"):
        registry.referenced(registry.find(1))


def test_a_guid_is_the_md5_of_the_record_and_prefers_the_default_context() -> None:
    guid = uuid.UUID(int=77)
    registry = replayed(version(":.x:a", 1, 5, guid=str(guid)), version("a", 1, 1, guid=str(guid)))
    assert registry.find(guid).subject == "a"
    with pytest.raises(LookupError, match="no schema has the GUID"):
        registry.find(uuid.UUID(int=78))


@pytest.mark.parametrize(
    "kind", ["CONFIG", "MODE", "NOOP", "CONTEXT", "ASSOC"], ids=lambda kind: kind
)
def test_other_records_change_nothing(kind: str) -> None:
    key = compact_json({"keytype": kind, "magic": 0})
    registry = replayed((key, b'{"compatibilityLevel":"FULL"}'), (key, None))
    assert registry == SchemaRegistry()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\xff", b"{}"),
        (b"[" * 100_000, b"{}"),
        (b"[]", b"{}"),
        (b'{"keytype":"NEW"}', b"{}"),
        (b'{"keytype":["SCHEMA"]}', b"{}"),
        (b'{"keytype":"SCHEMA","magic":2,"subject":"a","version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","magic":1,"subject":"a","version":true}', b"{}"),
        (b'{"keytype":"SCHEMA","magic":1,"subject":5,"version":1}', None),
        (b'{"keytype":"SCHEMA","magic":1,"subject":"a","version":1}', b'{"id":1}'),
        (b'{"keytype":"SCHEMA","magic":1,"subject":"a","version":1}', b'{"id":-1,"schema":""}'),
        (b'{"keytype":"DELETE_SUBJECT"}', b"null"),
    ],
)
def test_a_record_that_no_registry_writes_is_a_problem(key: bytes, value: bytes | None) -> None:
    registry = replayed(version("a", 9, 1), (key, value), version("b", 1, 2, '"int"'))
    assert ids(registry, [1, 2]) == ['"string"', '"int"']
    assert len(registry.problems) == 1
    assert registry.problems[0].startswith("offset 1: ")


def test_a_deletion_that_claims_billions_of_versions_takes_no_time() -> None:
    registry = replayed(version("a", 1, 1), delete_subject("a", 2**62))
    assert registry.find(1).is_deleted


def test_references_of_a_dump_are_checked() -> None:
    found = {"subject": "a", "version": 1, "id": 1, "schema": "{}", "references": [{"name": "x"}]}
    with pytest.raises(RegistryError, match="subject is missing"):
        stored_schema(json.loads(json.dumps(found)))
    whole = {**found, "references": [{"name": "x", "subject": "s", "version": -1}]}
    assert stored_schema(whole).references == (SchemaReference("x", "s", -1),)
