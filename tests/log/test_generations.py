"""The reported versions include the version that wrote the directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batches
from builders.log_directories import offset_index, write_partition
from kdump.formats.names import TopicPartition
from kdump.log.directory import read_log_directory
from kdump.log.generations import Generation, broker_generation, segment_generations
from kdump.log.partition import read_partition
from kdump.storage.local_disk import local

GENERATIONS = {
    "0.8.2.2": ("3.6 or earlier", {"0.8 to 0.9"}),
    "0.11.0.3": ("0.11 to 2.3", {"0.11 to 1.1", "0.11 or later"}),
    "1.0.2": ("0.11 to 2.3", {"0.11 to 1.1", "0.11 or later"}),
    "2.4.1": ("2.4 to 3.6", {"0.11 or later", "2.0 or later", "2.0 to 3.9"}),
    "2.8.2": ("2.4 to 3.6", {"0.11 or later", "2.0 or later", "2.0 to 3.9"}),
    "3.3.2": ("2.8 to 3.6", {"0.11 or later", "2.0 or later", "3.1 to 3.9"}),
    "3.9.1": ("3.7 to 3.9", {"0.11 or later", "2.0 or later"}),
}


@pytest.mark.parametrize("version", GENERATIONS)
def test_a_directory_shows_its_generation(fixtures: Path, version: str) -> None:
    directory = read_log_directory(local(fixtures / "old" / version / "clean"))
    broker, segments = GENERATIONS[version]
    assert str(broker_generation(directory, [each.path for each in directory.partitions])) == broker
    found = set().union(*map(segment_generations, directory.partitions))
    assert found == segments


@pytest.mark.parametrize(
    ("generation", "text"),
    [
        (Generation(), "any"),
        (Generation((0, 11)), "0.11 or later"),
        (Generation(None, (3, 9)), "3.9 or earlier"),
        (Generation((0, 11), (1, 1)), "0.11 to 1.1"),
        (Generation((2, 0), (2, 0)), "2.0"),
        (Generation((0, 11), (1, 1)) & Generation((2, 0)), "1.1 or earlier, then 2.0 or later"),
        (Generation((0, 9)) & Generation((0, 10), (3, 9)), "0.10 to 3.9"),
    ],
)
def test_a_range_of_versions_is_described_in_words(generation: Generation, text: str) -> None:
    assert str(generation) == text


def test_an_index_entry_before_the_log_is_damage_and_no_evidence(tmp_path: Path) -> None:
    logs = {0: b"".join(batches(2))}
    for name, entry in (("valid", (5, len(logs[0]) // 2)), ("damaged", (5, -61))):
        path = write_partition(tmp_path / name, logs, offset_indexes={0: offset_index(entry)})
        partition = read_partition(local(path), TopicPartition("t", 0))
        expected = "2.0 or later" if name == "valid" else "0.11 or later"
        assert segment_generations(partition) == {expected: 1}
