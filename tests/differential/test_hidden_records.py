"""No log is called valid if a start hides records of it: judged by Kafka's own loader.

Only small files are damaged, so what Kafka had of a log before is what is in it.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Final

import pytest

from builders.hidden_records import Case, cases, judged
from builders.loading import LoaderServer
from builders.samples import seeds
from kdump.formats import names
from kdump.formats.names import PartitionState

pytestmark = pytest.mark.differential


FEW: Final = 0.02
"""In so many cases may recover miss what verify reports, or call a loss what is none.

Of 2,000 there are six: a start reads no log whose small files agree with each other.
"""


def no_problems(found: list[Case]) -> None:
    """Fail with the first few cases with a problem, if verify misses any, or there are many."""
    wrong = [case for case in found if case.problems]
    missed = [
        case
        for case in wrong
        if any(each.startswith("verify says") and "damaged" not in each for each in case.problems)
    ]
    if missed or len(wrong) > max(1, FEW * len(found)):
        shown = "\n".join(map(str, wrong[:3]))
        pytest.fail(f"{len(wrong)} of {len(found)}, such as\n{shown}", pytrace=False)


def _state(folder: Path) -> PartitionState:
    return names.parse_partition_directory_name(folder.name).state


@pytest.mark.parametrize("seed", seeds(1, count=14, in_main=1))
def test_what_a_clean_start_hides_is_a_loss(
    loader_server: LoaderServer, quick_path: Path, seed: int
) -> None:
    no_problems(list(cases(loader_server, quick_path, seed, 100, clean=True)))


@pytest.mark.parametrize("seed", seeds(101, count=6, in_main=1))
def test_what_an_unclean_start_hides_is_a_loss(
    loader_server: LoaderServer, quick_path: Path, seed: int
) -> None:
    no_problems(list(cases(loader_server, quick_path, seed, 100, clean=False)))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("seed", seeds(301, count=5, in_main=1))
def test_what_a_start_of_the_newest_kafka_hides_is_a_loss(
    newest_loader_server: LoaderServer, quick_path: Path, seed: int, clean: bool
) -> None:
    no_problems(list(cases(newest_loader_server, quick_path, seed, 30, clean=clean)))


@pytest.mark.parametrize("seed", seeds(201, count=10, in_main=1))
def test_what_a_start_hides_of_a_real_broker_is_a_loss(
    loader_server: LoaderServer, fixtures: Path, quick_path: Path, seed: int
) -> None:
    base = quick_path / "base"
    shutil.copytree(fixtures / "out" / "clean" / "d2", base)
    for folder in base.iterdir():
        if folder.is_dir() and _state(folder) is not PartitionState.LIVE:
            shutil.rmtree(folder)
    no_problems(list(judged(loader_server, quick_path, base, random.Random(seed))))
