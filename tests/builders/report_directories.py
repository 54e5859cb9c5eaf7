"""Log directories for reports: a broker with damage of every kind, and one with ten thousand logs.

Both are the same in every run. As a script it writes the pages whose pictures are in
``docs/pictures``.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.damage import batch_positions
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.verified import write_segment
from kdump.formats.compression import Codec

_TOPICS: Final = (
    *("orders", "payments", "clicks", "audit", "invoices", "shipments", "sessions", "metrics"),
    *("returns", "prices", "stock", "mail", "fraud-scores", "search-queries", "ratings"),
)


def write_damaged_broker(clean: Path, root: Path) -> list[Path]:
    """Copy the two directories of a broker and damage some of their logs.

    Args:
        clean: ``fixtures/out/clean``.
        root: where to write ``d1`` and ``d2``.

    Returns:
        The log directories.
    """
    directories = []
    for name in ("d1", "d2"):
        shutil.copytree(clean / name, root / name, copy_function=shutil.copyfile)
        directories.append(root / name)
    _flip(_largest_log(directories, "codec-none-0"), (5, 6, 40))
    _salvage(directories, "codec-none-0")
    _flip(_largest_log(directories, "codec-none-0"), (20, 60))
    _flip(_largest_log(directories, "codec-lz4-0"), (3,))
    _overwrite(_largest_log(directories, "seg.bytes-roll-0"), 0.3, b"\0")
    _overwrite(_largest_log(directories, "codec-zstd-0"), 0.6, b"?")
    torn = _largest_log(directories, "multi.part-topic_x-1")
    torn.write_bytes(torn.read_bytes()[:-37])
    _log_of(directories, "idempotent-0").with_suffix(".index").write_bytes(b"\xff" * 24)
    return directories


def _largest_log(directories: Iterable[Path], partition: str) -> Path:
    logs = [log for each in directories for log in (each / partition).glob("0*.log")]
    return max(logs, key=lambda log: (log.stat().st_size, log.name))


def _log_of(directories: Iterable[Path], partition: str) -> Path:
    return min(log for each in directories for log in (each / partition).glob("0*.log"))


def _flip(log: Path, batches: Iterable[int]) -> None:
    """Flip a bit in the records of some batches."""
    content = bytearray(log.read_bytes())
    positions = batch_positions(content)
    for number in batches:
        content[positions[number % len(positions)] + 65] ^= 4
    log.write_bytes(content)


def _overwrite(log: Path, where: float, filling: bytes) -> None:
    """Overwrite a tenth of a log, as a bad sector does."""
    content = bytearray(log.read_bytes())
    start, size = int(len(content) * where), len(content) // 10
    content[start : start + size] = filling * size
    log.write_bytes(content)


def _salvage(directories: Iterable[Path], partition: str) -> None:
    named = [str(each) for each in directories]
    words = ("recover", "--policy", "salvage", "--no-undo", "--partition", partition)
    run_kdump([*words, *named], Path.cwd())


def write_large_broker(root: Path, count: int) -> Path:
    """Write ``count`` small partitions of some hundred topics, a few of them damaged.

    Their logs are hard links to a few files.
    """
    rng = random.Random(7)
    templates = [_template(root.parent / "templates", rng, number) for number in range(40)]
    offsets: dict[tuple[str, int], int] = {}
    write_log_directory(root, clean=True)
    for number in range(count):
        topic = f"{_TOPICS[number % len(_TOPICS)]}.{int(rng.paretovariate(0.7)) % 24}"
        partition = sum(name == topic for name, _ in offsets) if count < 200 else number
        _link(templates[int(rng.random() ** 3 * 40)], root / f"{topic}-{partition}")
        offsets[topic, partition] = 0
    damaged = sorted(root.glob("orders*-*"))[:: max(1, count // 300)]
    for path in damaged[:12]:
        log = path / f"{0:020d}.log"
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 8
        log.unlink()
        log.write_bytes(content)
    shutil.rmtree(root.parent / "templates")
    return root


def _template(folder: Path, rng: random.Random, number: int) -> Path:
    """A partition of a few batches, from some hours of a month."""
    codec = list(Codec)[number % 5]
    start = BASE_TIMESTAMP_MS + rng.randrange(20 * 86_400_000)
    content, offset = [], 0
    for step in range(2 + number):
        count = rng.randrange(1, 40)
        value = bytes(rng.choices(b"abcdefgh", k=rng.choice((20, 80, 300))))
        time = start + step * rng.randrange(60_000, 7_200_000)
        rows = [record(offset + each, value=value, timestamp=time) for each in range(count)]
        content.append(batch(rows, codec=codec))
        offset += count
    path = folder / f"t{number}-0"
    write_partition(path)
    write_segment(path, 0, content)
    return path


def _link(template: Path, target: Path) -> None:
    target.mkdir()
    for each in template.iterdir():
        os.link(each, target / each.name)


if __name__ == "__main__":
    kind, *places = sys.argv[1:]
    if kind == "damaged":
        write_damaged_broker(Path(places[0]), Path(places[1]))
    else:
        write_large_broker(Path(places[0]), int(places[1]))
