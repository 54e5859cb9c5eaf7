"""kdump's tables have what the newest Kafka defines: record types, versions, fields, levels.

A new release: raise the version in ``tests/java/newest/pom.xml``, and run
``./dev kafka-definitions``. These tests say what else to add.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from builders import kafka_jars
from builders.kafka_definitions import unknown_levels, unknown_messages
from builders.kafka_jars import ReferenceUnavailable


def test_the_schemas_are_those_of_kafkas_message_definitions(newest_kafka_jars: Path) -> None:
    assert unknown_messages(newest_kafka_jars) == []


def test_the_levels_of_features_are_those_of_kafkas_classes(newest_kafka_jars: Path) -> None:
    assert unknown_levels(f"{newest_kafka_jars}{os.sep}*") == []


@pytest.mark.soak
def test_no_newer_kafka_has_what_the_tables_lack(tmp_path: Path) -> None:
    """The newest release in Maven's central repository may be newer than the one in the POM."""
    pom = tmp_path / "pom.xml"
    newest = re.sub(r"(kafka_2.13</artifactId><version>)[^<]+", r"\1[4.4.0,)", text_of_pom())
    pom.write_text(newest)
    try:
        kafka_jars.fetch_into(jars := tmp_path / "jars", pom)
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    assert unknown_messages(jars) + unknown_levels(f"{jars}{os.sep}*") == []


def text_of_pom() -> str:
    return kafka_jars.NEWEST_POM.read_text()
