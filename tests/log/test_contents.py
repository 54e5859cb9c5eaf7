"""Batches are counted by format, codec and producer."""

from __future__ import annotations

from pathlib import Path

from builders.batches import batch, batches, record
from builders.log_directories import write_partition
from builders.message_sets import message, message_07, wrapped_values, wrapper_07
from builders.read_records import survey_partition
from kdump.formats.compression import Codec
from kdump.formats.names import TopicPartition
from kdump.log.contents import LogContents
from kdump.log.partition import read_partition
from kdump.log.problems import FileProblem
from kdump.storage.local_disk import local


def survey(path: Path) -> tuple[LogContents, list[FileProblem]]:
    return survey_partition(read_partition(local(path), TopicPartition("orders", 0)))


def test_batches_of_all_segments_are_counted(tmp_path: Path) -> None:
    plain = batch([record(0), record(1)])
    transactional = batch(
        [record(2)], codec=Codec.ZSTD, attributes=0x10, producer_id=7, base_sequence=0
    )
    end = record(3, key=bytes(4), value=bytes(6))
    marker = batch([end], attributes=0x30, producer_id=7)
    path = write_partition(tmp_path / "p", {0: plain, 2: transactional + marker})
    assert survey(path) == (
        LogContents(
            batches=3,
            records=4,
            formats={"magic 2": 3},
            codecs={"none": 2, "zstd": 1},
            producer_ids=frozenset({7}),
            transactional_batches=2,
            control_batches=1,
        ),
        [],
    )


def test_the_number_of_messages_in_a_wrapper_is_unknown(tmp_path: Path) -> None:
    log = message(0, magic=0) + wrapped_values([b"a", b"b"], first_offset=1) + batch([record(3)])
    contents, _ = survey(write_partition(tmp_path / "p", {0: log}))
    assert contents.formats == {"magic 0": 1, "magic 1": 1, "magic 2": 1}
    assert contents.codecs == {"gzip": 1, "none": 2}
    assert contents.records is None


def test_kafka_0_7_is_a_format_of_its_own(tmp_path: Path) -> None:
    log = message_07(b"a") + message_07(b"b", magic=0)
    contents, problems = survey(
        write_partition(tmp_path / "p", others={"00000000000.kafka": log + bytes(9)})
    )
    assert (contents.formats, contents.records) == ({"Kafka 0.7": 2}, 2)
    assert problems == []
    wrapped, _ = survey(
        write_partition(tmp_path / "q", others={"00000000000.kafka": wrapper_07([log])})
    )
    assert (wrapped.codecs, wrapped.records) == ({"gzip": 1}, None)


def test_a_codec_that_does_not_exist_is_counted_as_unknown(tmp_path: Path) -> None:
    log = batch([record(0)], attributes=0x07)
    contents, _ = survey(write_partition(tmp_path / "p", {0: log}))
    assert contents.codecs == {"unknown": 1}


def test_zeroes_are_padding_only_at_the_end_of_the_log(tmp_path: Path) -> None:
    first, second = batches(2)
    padded = survey(write_partition(tmp_path / "p", {0: first, 3: second + bytes(100)}))
    assert padded[1] == []
    contents, problems = survey(write_partition(tmp_path / "q", {0: first + bytes(100), 3: second}))
    assert contents.batches == 2
    assert [(problem.path.name, problem.is_damage) for problem in problems] == [
        ("00000000000000000000.log", True)
    ]


def test_a_missing_file_is_a_problem_but_not_damage(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "p", {0: b"".join(batches(1))})
    partition = read_partition(local(path), TopicPartition("orders", 0))
    (path / "00000000000000000000.log").unlink()
    contents, problems = survey_partition(partition)
    assert contents == LogContents()
    assert [problem.is_damage for problem in problems] == [False]


def test_a_damaged_batch_is_a_problem_and_not_counted(tmp_path: Path) -> None:
    first, second, third = batches(3)
    log = first + second[:-1] + bytes([second[-1] ^ 1]) + third
    path = write_partition(tmp_path / "p", {0: log})
    contents, problems = survey(path)
    assert (contents.batches, contents.records) == (2, 6)
    assert [str(problem.error) for problem in problems] == [
        f"a batch is damaged: its checksum is wrong at byte {len(first)}"
    ]
