"""A Spark stream over log directories, in a process of its own that can be killed.

python -m builders.streamed_log LOG_DIRS CHECKPOINT SINK OPTIONS IS_BOUNDED
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds


class StreamedLog:
    """A stream into Parquet files below ``folder``, which goes on where it was killed."""

    def __init__(self, log_dirs: Sequence[Path], folder: Path, **options: str) -> None:
        self._sink = folder / "sink"
        self._checkpoint = folder / "checkpoint"
        self._log = folder / "stream.log"
        self._arguments = [
            json.dumps(list(map(str, log_dirs))),
            str(self._checkpoint),
            str(self._sink),
            json.dumps(options),
        ]

    def run_and_kill(self, batches: int) -> None:
        """Let it finish so many micro-batches, and kill it with all its processes."""
        process = self._started(is_bounded=False)
        enough = self.finished + batches
        while self.finished < enough:
            assert process.poll() is None, self._log.read_text()[-3000:]
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @property
    def finished(self) -> int:
        """The number of micro-batches that were finished."""
        done = (each.name for each in (self._checkpoint / "commits").glob("[0-9]*"))
        return max(map(int, done), default=-1) + 1

    def finished_offsets(self) -> dict[tuple[str, int], int]:
        """Where the micro-batches that were finished end, by partition."""
        if not (finished := self.finished):
            return {}
        line = (self._checkpoint / "offsets" / str(finished - 1)).read_text().splitlines()[-1]
        return {
            (topic, int(number)): offset
            for topic, offsets in json.loads(line).items()
            for number, offset in offsets.items()
        }

    def run(self) -> None:
        """Read on to what is there by now."""
        assert self._started(is_bounded=True).wait() == 0, self._log.read_text()[-3000:]

    def rows(self) -> pa.Table:
        """What the micro-batches that were finished have: the sink names their files."""
        lines = [
            json.loads(line)
            for log in (self._sink / "_spark_metadata").glob("[0-9]*")
            for line in log.read_text().splitlines()[1:]
        ]
        paths = {str(each["path"]).removeprefix("file://") for each in lines}
        return ds.dataset(sorted(paths), format="parquet").to_table()

    def _started(self, *, is_bounded: bool) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "builders.streamed_log", *self._arguments]
        root = Path(__file__).parents[2]
        paths = os.pathsep.join(map(str, (root, root / "tests")))
        own = {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "PYSPARK_PYTHON": sys.executable}
        own["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*command, str(is_bounded)],
                env=os.environ | own,
                cwd=self._log.parent,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def main(log_dirs: str, checkpoint: str, sink: str, options: str, is_bounded: str) -> None:
    from pyspark.sql import SparkSession

    from kdump.pipeline.data_source import register

    chosen: Mapping[str, str] = json.loads(options)
    builder = SparkSession.builder.master("local[2]")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    register(session)
    frame = session.readStream.format("kafka-log").options(**chosen, paths=log_dirs).load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    if is_bounded == "True":
        writer = writer.trigger(availableNow=True)
    writer.start(sink).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
