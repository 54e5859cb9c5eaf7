"""The codes of findings: one table, one module for each, and no decision by a text."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import kdump
from kdump.check import invariants
from kdump.check.findings import Severity
from kdump.check.invariants import INVARIANTS, Invariant, Remedy

PACKAGE: Final = Path(kdump.__file__).parent
NAMES: Final = {
    name: found.code for name, found in vars(invariants).items() if isinstance(found, Invariant)
}

IN_TWO_MODULES: Final = {
    # Kafka 0.7 has a log format of its own.
    *("torn-tail", "zero-fill", "batch-length", "batch-magic", "batch-checksum", "batch-codec"),
    # Within a segment, and where its last parts meet.
    "time-index-entry",
    # In the root of a log directory and in a partition.
    *("partition-twice", "foreign-file", "kdump-file", "file-unreadable"),
}
"""Codes that are checked in two places."""


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax trees of kdump's modules; a process that only collects tests needs none."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
    }


def modules_by_code() -> dict[str, set[str]]:
    """Return the modules of checks that can make a finding of each code."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        if not path.startswith(("check/", "jobs/")) or path == "check/invariants.py":
            continue
        is_imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == invariants.__name__
            for alias in node.names
        }
        for name in names_used(tree, is_imported):
            found[NAMES[name]].add(path)
    return found


def names_used(tree: ast.AST, imported: set[str]) -> Iterator[str]:
    """Return names of invariants that are used for other purposes than their code."""
    codes_only = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "code"
    }
    for node in ast.walk(tree):
        if id(node) in codes_only:
            continue
        if isinstance(node, ast.Name) and node.id in imported & NAMES.keys():
            yield node.id
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "invariants"
            and node.attr in NAMES
        ):
            yield node.attr


def test_each_code_is_checked_in_one_module() -> None:
    found = modules_by_code()
    assert found.keys() == INVARIANTS.keys()
    assert {code for code, modules in found.items() if len(modules) > 1} == IN_TWO_MODULES


def test_a_finding_is_made_from_the_table_only() -> None:
    making = {
        path
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Finding"
    }
    assert making == {"check/invariants.py"}


def test_nothing_is_decided_by_the_words_of_a_message() -> None:
    deciding = [
        f"{path}:{node.lineno}"
        for path, tree in trees().items()
        if path.startswith(("broker/", "check/", "jobs/", "log/", "repair/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and decides_by_words(node)
    ]
    assert not deciding


def decides_by_words(node: ast.AST) -> bool:
    """Tell whether the text of an error or a finding is compared or searched."""
    if isinstance(node, ast.Compare):
        return any(
            isinstance(each, ast.Attribute) and each.attr == "what"
            for each in (node.left, *node.comparators)
        )
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"startswith", "endswith", "find", "partition"}
        and isinstance(node.func.value, ast.Attribute)
        and node.func.value.attr == "what"
    )


def test_every_remedy_belongs_to_a_code() -> None:
    assert {each.remedy for each in INVARIANTS.values()} == set(Remedy)


def test_information_has_a_remedy_only_where_it_can_be_worse() -> None:
    remedied = {
        each.code
        for each in INVARIANTS.values()
        if each.severity is Severity.INFO and each.remedy is not Remedy.NONE
    }
    assert remedied == {"offset-gap", "segment-gap"}
