"""The data source ``kafka-log`` as a stream of Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builders import log_directories
from builders.batches import records_at

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SqlSession

LOG = "00000000000000000000.log"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = log_directories.write_log_directory(tmp_path / "data")
    log_directories.write_partition(path / "orders-0", {0: records_at(0, 5)})
    return path


class Stream:
    """A stream into Parquet files, which goes on from its checkpoint in each run."""

    def __init__(self, sql: SqlSession, log_dir: Path, folder: Path) -> None:
        self._sql = sql
        self._log_dir = log_dir
        self._checkpoint = folder / "checkpoint"
        self._sink = folder / "sink"

    def run(self, **options: str) -> list[int]:
        """Read what is there; return how many rows each micro-batch had."""
        reader = self._sql.readStream.format("kafka-log").options(**options)
        writer = reader.load(str(self._log_dir)).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).start(str(self._sink))
        query.awaitTermination()
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def offsets(self) -> Sequence[int]:
        return sorted(row.offset for row in self._sql.read.parquet(str(self._sink)).collect())

    def forget_last_commit(self) -> None:
        """Let the last micro-batch be one that was not finished when the query was killed."""
        last = max(map(int, (each.name for each in (self._checkpoint / "commits").glob("[0-9]*"))))
        for name in (str(last), f".{last}.crc"):
            (self._checkpoint / "commits" / name).unlink()

    def checkpointed(self) -> dict[str, dict[str, int]]:
        """The offsets of the last micro-batch, as Spark keeps them."""
        last = max((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
        found: dict[str, dict[str, int]] = json.loads(last.read_text().splitlines()[-1])
        return found


@pytest.fixture
def stream(sql: SqlSession, log_dir: Path, tmp_path: Path) -> Stream:
    return Stream(sql, log_dir, tmp_path)


def append(log_dir: Path, data: bytes) -> None:
    with (log_dir / "orders-0" / LOG).open("ab") as log:
        log.write(data)


def test_each_record_is_there_once_over_several_runs(stream: Stream, log_dir: Path) -> None:
    assert stream.run(startingOffsets="earliest") == [5]
    assert stream.run() == []
    append(log_dir, records_at(5, 7))
    assert stream.run(maxOffsetsPerTrigger="3") == [3, 3, 1]
    assert stream.offsets() == list(range(12))
    assert stream.checkpointed() == {"orders": {"0": 12}}


def test_a_micro_batch_that_was_not_finished_is_read_again(stream: Stream, log_dir: Path) -> None:
    stream.run(startingOffsets="earliest")
    append(log_dir, records_at(5, 7))
    stream.run()
    stream.forget_last_commit()
    append(log_dir, records_at(12, 1))
    stream.run()
    assert stream.offsets() == list(range(13))


def test_a_stream_begins_at_the_end_of_a_log_by_default(stream: Stream, log_dir: Path) -> None:
    assert stream.run() == []
    append(log_dir, records_at(5, 2))
    assert stream.run() == [2]
    assert stream.offsets() == [5, 6]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "a stream of kafka-log has no option endingOffsets"),
        ({"startingOffsets": '{"orders":{"0":9}}'}, "orders-0: startingOffsets is 9, outside"),
    ],
)
def test_a_stream_that_cannot_be_is_refused_in_plain_words(
    stream: Stream, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        stream.run(**options)


def test_a_limit_of_streams_is_refused_in_a_query(sql: SqlSession, log_dir: Path) -> None:
    reader = sql.read.format("kafka-log").option("maxOffsetsPerTrigger", "1")
    with pytest.raises(Exception, match="kafka-log has no option 'maxoffsetspertrigger'"):
        reader.load(str(log_dir)).count()
