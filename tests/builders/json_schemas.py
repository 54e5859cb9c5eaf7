"""The schemas in ``docs/schemas``, as a reader of kdump's JSON would use them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import referencing

SCHEMAS: Final = Path(__file__).resolve().parents[2] / "docs" / "schemas"
COMMON: Final = "common.json"
FILES: Final = (
    "erase-certificate.json",
    "export-manifest.json",
    "metadata-collection.json",
    "metadata-plan.json",
    "verify-state.json",
)
"""Schemas of files that kdump writes and reads, not of its output."""


@functools.cache
def documents() -> dict[str, dict[str, Any]]:
    """Return every schema by its file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted(SCHEMAS.glob("*.json"))}


@functools.cache
def _validator(reference: str) -> jsonschema.Draft202012Validator:
    resources = (
        (name, referencing.Resource.from_contents(document))
        for name, document in documents().items()
    )
    registry = referencing.Registry().with_resources(resources)
    return jsonschema.Draft202012Validator({"$ref": reference}, registry=registry)


def problem_of_answer(command: str, answer: list[dict[str, Any]]) -> str | None:
    """Validate a whole answer; return the problem, or None."""
    error = jsonschema.exceptions.best_match(_validator(_file(command)).iter_errors(answer))
    return None if error is None else f"{error.json_path}: {error.message}"


def problem_of_document(name: str, document: Any) -> str | None:
    """Validate a file that kdump writes; return the problem, or None."""
    error = jsonschema.exceptions.best_match(_validator(f"{name}.json").iter_errors(document))
    return None if error is None else f"{error.json_path}: {error.message}"


def problems_of_objects(command: str, answer: list[dict[str, Any]]) -> Iterator[str]:
    """Validate each object of an answer by its type; return the problems."""
    kinds = documents()[_file(command)]["$defs"]
    for each in answer:
        if each["type"] not in kinds:
            yield f"{command}: no schema for type {each['type']}: {each}"
            continue
        validator = _validator(f"{_file(command)}#/$defs/{each['type']}")
        error = jsonschema.exceptions.best_match(validator.iter_errors(each))
        if error is not None:
            yield f"{command}, {each['type']}: {error.json_path}: {error.message}"


def _file(command: str) -> str:
    return f"{command.split()[0]}.json"
