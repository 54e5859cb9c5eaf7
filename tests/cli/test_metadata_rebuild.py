"""``kdump metadata rebuild``: collect, plan and apply for a cluster on one machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from builders.dead_clusters import an_id
from builders.in_process import Outcome, run_kdump
from builders.json_answers import all_objects, objects
from builders.json_schemas import problem_of_answer
from builders.trees import contents_of
from kdump.formats.names import META_PROPERTIES

DISKS = ("b1-d1", "b2-d1", "b2-d2", "b3-d1")
CONTROLLER = ("--controller", "101@localhost:9093")


@pytest.fixture(scope="module")
def disks(fixtures: Path) -> list[Path]:
    """The disks of a real cluster's brokers."""
    return [fixtures / "states" / "clean" / each for each in DISKS]


@pytest.fixture
def into(tmp_path: Path) -> Path:
    (tmp_path / "ctrl").mkdir()
    return tmp_path / "ctrl"


def rebuild(into: Path, *args: str | Path) -> Outcome:
    words = ["metadata", "rebuild", "--into", str(into), *CONTROLLER, *map(str, args)]
    return run_kdump(words, into.parent)


def shown_topics(directory: Path, *args: str) -> dict[str, str]:
    outcome = run_kdump(["metadata", "show", *args, "--output", "json", str(directory)], directory)
    (metadata,) = objects(outcome.stdout)
    return {topic["name"]: topic["id"] for topic in metadata["topics"]}


def test_a_controller_gets_the_topics_and_brokers_disks_stay_as_they_are(
    disks: list[Path], into: Path, fixtures: Path
) -> None:
    before = {each: sorted(path.name for path in each.iterdir()) for each in disks}
    outcome = rebuild(into, *disks, "--accept-loss")
    assert outcome.exit_status == 0, outcome.stderr
    after = json.loads((fixtures / "states" / "clean" / "after.json").read_text())
    assert shown_topics(into) == {name: each["id"] for name, each in after["topics"].items()}
    assert {each: sorted(path.name for path in each.iterdir()) for each in disks} == before


@pytest.mark.slow
def test_a_preview_shows_the_same_page_and_writes_nothing(disks: list[Path], into: Path) -> None:
    preview = rebuild(into, *disks, "--accept-loss", "--dry-run").stdout.decode()
    assert not contents_of(into)
    written = rebuild(into, *disks, "--accept-loss").stdout.decode()
    page, _, _ = written.partition(f"\n{into}: ")
    assert preview.startswith(page)
    assert "nothing written" in preview
    assert preview.endswith("next: the same command without --dry-run\n")
    assert "next: start the controllers" in written.splitlines()[-1]


def test_a_rebuilt_controller_can_be_undone(disks: list[Path], into: Path) -> None:
    rebuild(into, *disks, "--accept-loss")
    assert run_kdump(["undo", str(into)], into.parent).exit_status == 0
    assert not contents_of(into)


@pytest.mark.slow
def test_running_it_again_reaches_the_same_end(disks: list[Path], into: Path) -> None:
    rebuild(into, *disks, "--accept-loss")
    first = shown_topics(into)
    assert rebuild(into, *disks, "--accept-loss").exit_status == 0
    assert shown_topics(into) == first
    assert len(list((into / "__cluster_metadata-0").glob("*.checkpoint"))) == 1


@pytest.mark.slow
def test_a_moment_can_be_chosen_again(disks: list[Path], into: Path, fixtures: Path) -> None:
    """What a run has written does not reach back to the moment, and is above all other copies."""
    controller = fixtures / "states" / "clean" / "c1001"
    pages = []
    for moment in ("2026-11-21T20:17:46.500Z", "2026-11-21T20:17:05.000Z"):
        outcome = rebuild(into, *disks, "--accept-loss", "--to", moment)
        assert outcome.exit_status == 0, outcome.stderr
        pages.append(outcome.stdout.decode())
        assert f"as of          {moment} (UTC): topics" in pages[-1]
        assert shown_topics(into) == shown_topics(controller, "--at", moment)
    assert ["late-copy" in page for page in pages] == [False, True]
    assert shown_topics(into) != shown_topics(controller)


def test_a_formatted_directory_keeps_its_id(disks: list[Path], into: Path) -> None:
    properties = (
        "version=1\ncluster.id=kdumpQuorumHeldOutAAAA\nnode.id=101\n"
        f"directory.id={an_id('formatted')}\n"
    )
    (into / META_PROPERTIES).write_text(properties)
    (applied,) = (
        each
        for each in objects(rebuild(into, *disks, "--accept-loss", "--output", "json").stdout)
        if each["type"] == "apply"
    )
    assert [each["directory_id"] for each in applied["voters"]] == [an_id("formatted")]
    assert (into / META_PROPERTIES).read_text() == properties


def test_the_copy_of_a_former_combined_node_is_moved_aside(fixtures: Path, into: Path) -> None:
    """A controller's disk that is given as a broker's names itself a voter."""
    combined = into.parent / "combined"
    shutil.copytree(fixtures / "states" / "clean" / "c1001", combined)
    outcome = rebuild(into, combined)
    assert outcome.exit_status == 0, outcome.stderr
    assert not (combined / "__cluster_metadata-0").exists()
    assert list(combined.glob("__cluster_metadata-0.*-stray"))
    assert len(shown_topics(into)) > 40
    first = shown_topics(into)
    assert rebuild(into, combined).exit_status == 0
    assert shown_topics(into) == first


def test_what_drops_something_is_not_written(fixtures: Path, into: Path) -> None:
    disk = into.parent / "b3-d1"
    shutil.copytree(fixtures / "states" / "clean" / "b3-d1", disk)
    file = disk / "cache-2" / "partition.metadata"
    topic_id = file.read_text().split("topic_id: ")[1].strip()
    file.write_text(file.read_text().replace(topic_id, an_id("other")))
    for form in ("json", "jsonl"):
        outcome = rebuild(into, disk, "--output", form)
        assert outcome.exit_status == 4
        answer = all_objects(outcome.stdout)
        assert problem_of_answer("metadata", answer) is None
        assert answer[-2]["is_refused"]
    assert not contents_of(into)


def test_the_answer_is_what_the_schema_describes(disks: list[Path], into: Path) -> None:
    answer = all_objects(rebuild(into, *disks, "--accept-loss", "--output", "jsonl").stdout)
    assert problem_of_answer("metadata", answer) is None
    assert {"notice", "apply", "summary"} <= {each["type"] for each in answer}


def test_a_missing_disk_stops_it(disks: list[Path], into: Path) -> None:
    assert rebuild(into, *disks, into.parent / "missing").exit_status == 8
    assert not contents_of(into)
