"""``kdump metadata plan``: from the disks of a real cluster's brokers to its metadata."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, Final

import pytest

from builders.dead_clusters import an_id, copy, disk, replica, topic_records, write_collection
from builders.in_process import Outcome, run_kdump, run_on_terminal
from builders.json_answers import objects
from builders.json_schemas import problem_of_document
from kdump.errors import ExitStatus
from kdump.repair.cluster.config_choice import UNCLEAN_ELECTION
from kdump.state.metadata.cluster_plan import ClusterPlan
from kdump.state.metadata.cluster_plan_json import decode_plan

BROKERS: Final = {"b1": ("b1-d1",), "b2": ("b2-d1", "b2-d2"), "b3": ("b3-d1",)}
CONTROLLER: Final = ("--controller", "1001@localhost:9093")


def plan(cwd: Path, *args: str | Path) -> Outcome:
    return run_kdump(["metadata", "plan", *CONTROLLER, *map(str, args)], cwd)


def read_plan(path: Path) -> ClusterPlan:
    return decode_plan(path.read_bytes())


@pytest.fixture(scope="module")
def cluster(fixtures: Path) -> Path:
    return fixtures / "states" / "clean"


@pytest.fixture(scope="module")
def collections(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collections of the brokers of a real cluster, without its controllers."""
    folder = tmp_path_factory.mktemp("collections")
    for name, directories in BROKERS.items():
        paths = [str(cluster / each) for each in directories]
        outcome = run_kdump(["metadata", "collect", "--out", f"{name}.json", *paths], folder)
        assert outcome.exit_status == 0, outcome.stderr
    return folder


@pytest.fixture(scope="module")
def planned(collections: Path) -> ClusterPlan:
    words = ["--out", "plan.json", "b1.json", "b2.json", "b3.json"]
    outcome = plan(collections, *words)
    assert outcome.exit_status == 4, outcome.stderr
    assert b"parted, --accept-loss or a decision needed" in outcome.stdout
    outcome = plan(collections, "--accept-loss", *words)
    assert outcome.exit_status == 0, outcome.stderr
    return read_plan(collections / "plan.json")


def manifest(cluster: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cluster / name).read_text())
    return found


def test_the_plan_has_the_topics_of_the_lost_cluster(cluster: Path, planned: ClusterPlan) -> None:
    expected = manifest(cluster, "after.json")["topics"]
    switched_off = {each.topic for each in planned.notices if each.code == "unclean-switched-off"}
    found = {
        topic.name: (
            topic.topic_id,
            {str(each.partition): sorted(each.replicas) for each in topic.partitions},
            {each.name: each.value for each in topic.configs}
            | ({UNCLEAN_ELECTION: "true"} if topic.name in switched_off else {}),
        )
        for topic in planned.topics
    }
    assert found == {
        name: (
            topic["id"],
            {number: sorted(each["replicas"]) for number, each in topic["partitions"].items()},
            topic["configs"],
        )
        for name, topic in expected.items()
    }


def test_leaders_are_the_replicas_that_led_after_the_next_start(
    cluster: Path, planned: ClusterPlan
) -> None:
    """Broker 3 was elected uncleanly, and broker 1 truncated what it had alone.

    In its last epoch nobody wrote to one partition: there broker 1 leads, and nothing is lost.
    """
    ends = manifest(cluster, "ends-3.json")
    leaders = {
        f"{topic.name}-{each.partition}": each.leader
        for topic in planned.topics
        for each in topic.partitions
    }
    assert leaders.pop("div-a-1") == 1
    parted = {name for name in ends if name.startswith("div-")} - {"div-a-1"}
    assert {name: leaders[name] for name in parted} == {
        name: ends[name]["leader"] for name in parted
    }
    found = {f"{each.topic}-{each.partition}" for each in planned.notices if each.code == "parted"}
    truncated = {name for name, _ in manifest(cluster, "truncations.json")["1"]}
    assert found == {name for name in truncated if name.startswith("div-")} - {"div-a-1"}


def test_security_and_features_are_kept(cluster: Path, planned: ClusterPlan) -> None:
    expected = manifest(cluster, "after.json")
    assert len(planned.acls) == len(expected["acls"])
    assert {each.data["name"] for each in planned.scram} == set(expected["scram"])
    assert len(planned.quotas) == sum(len(each) for each in expected["quotas"].values())
    levels = {each.name: each.level for each in planned.features}
    finalized = expected["features"]["finalizedFeatures"]
    assert levels == {
        name: each["maxVersionLevel"]
        for name, each in finalized.items()
        if name != "kraft.version" and each["maxVersionLevel"]
    }


def test_epochs_offsets_and_producer_ids_are_above_all_others(
    cluster: Path, planned: ClusterPlan
) -> None:
    images = manifest(cluster, "images.json").values()
    assert planned.snapshot_offset > max(each["next_offset"] for each in images)
    assert planned.snapshot_epoch > max(each["epoch"] for each in images)
    assert planned.next_producer_id >= max(each["next_producer_id"] for each in images)
    epochs = {
        (topic.topic_id, each.partition): each.leader_epoch
        for topic in planned.topics
        for each in topic.partitions
    }
    for image in images:
        for topic in image["topics"]:
            for each in topic["partitions"]:
                assert epochs[topic["id"], each["partition"]] > each["leader_epoch"]


def test_no_broker_makes_a_partition_of_the_plan_stray(
    cluster: Path, collections: Path, planned: ClusterPlan, tmp_path: Path
) -> None:
    assert planned.topics
    (tmp_path / "ctrl").mkdir()
    applied = run_kdump(["metadata", "apply", str(collections / "plan.json"), "ctrl"], tmp_path)
    assert applied.exit_status in (0, 1), applied.stderr
    for directories in BROKERS.values():
        paths = [str(cluster / each) for each in directories]
        words = ["recover", "--dry-run", "--metadata", "ctrl", "--output", "json", *paths]
        found = objects(run_kdump(words, tmp_path).stdout)
        partitions = [each for each in found if each["type"] == "partition"]
        assert len(partitions) > 50
        assert not [each for each in partitions if each["becomes_stray"]]


def test_without_any_copy_the_disks_have_all_topics(
    collections: Path, planned: ClusterPlan
) -> None:
    words = ["--accept-loss", "--set", "copy=none", "--out", "alone.json", "--force"]
    outcome = plan(collections, *words, *(f"{each}.json" for each in BROKERS))
    assert outcome.exit_status == 0, outcome.stdout.decode()
    alone = read_plan(collections / "alone.json")
    assert {each.topic_id: len(each.partitions) for each in alone.topics} == {
        each.topic_id: len(each.partitions) for each in planned.topics
    }
    assert b"ACLs" in outcome.stdout


def test_the_plan_is_a_private_file_as_the_schema_describes(
    collections: Path, planned: ClusterPlan
) -> None:
    path = collections / "plan.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    document = json.loads(path.read_text())
    assert problem_of_document("metadata-plan", document) is None
    assert planned.scram


def test_no_secret_is_printed(collections: Path, planned: ClusterPlan) -> None:
    for form in ("text", "json", "csv"):
        words = ["--out", "again.json", "--force", "--output", form]
        outcome = plan(collections, *words, *(f"{each}.json" for each in BROKERS))
        printed = (outcome.stdout + outcome.stderr).decode()
        for each in planned.scram:
            assert each.data["storedKey"] not in printed


# --- made-up disks


@pytest.mark.parametrize("out", ["b1.json", "./b1.json", "link.json"])
def test_a_plan_never_replaces_a_collection(collections: Path, tmp_path: Path, out: str) -> None:
    content = (collections / "b1.json").read_bytes()
    (tmp_path / "b1.json").write_bytes(content)
    (tmp_path / "link.json").symlink_to("b1.json")
    outcome = plan(tmp_path, "--accept-loss", "--force", "--out", out, "b1.json")
    assert outcome.exit_status == ExitStatus.USAGE
    assert f"--out {out}: is read, too".encode() in outcome.stderr
    assert (tmp_path / "b1.json").read_bytes() == content


def two_ids(folder: Path) -> Path:
    other = replica("orders", 1, topic_id=an_id("other"))
    return write_collection(folder / "c.json", disk(1, replica("orders"), other))


def test_a_plan_that_drops_something_is_not_written(tmp_path: Path) -> None:
    outcome = plan(tmp_path, "--out", "p.json", two_ids(tmp_path))
    assert outcome.exit_status == 4
    assert not (tmp_path / "p.json").exists()
    last = outcome.stdout.decode().splitlines()[-2:]
    assert last == [
        "p.json was not written: the plan drops 1 thing that a disk has",
        "next: decide with --set KEY=VALUE, or give --accept-loss",
    ]
    accepted = plan(tmp_path, "--out", "p.json", "--accept-loss", two_ids(tmp_path))
    assert accepted.exit_status == 0
    assert read_plan(tmp_path / "p.json").is_loss_accepted


def test_a_refused_plan_is_a_summary_without_a_size(tmp_path: Path) -> None:
    outcome = plan(tmp_path, "--out", "p.json", "--output", "json", two_ids(tmp_path))
    summary = objects(outcome.stdout)[-1]
    assert (summary["is_refused"], summary["size_bytes"], summary["need_acceptance"]) == (
        *(True, None),
        1,
    )


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_page_begins_with_counts_and_ends_with_the_next_command(
    columns: int, tmp_path: Path
) -> None:
    metadata = copy(*topic_records("orders", [(1,)]))
    write_collection(tmp_path / "c.json", disk(1, replica("orders"), metadata=metadata))
    lines = run_on_terminal(
        ["metadata", "plan", *CONTROLLER, "--out", "p.json", "c.json"], tmp_path, columns
    )
    assert lines[0].startswith("cluster a-cluster: 1 topic, 1 partition")
    assert all(len(line) <= columns for line in lines)
    end = " ".join(" ".join(lines[-2:]).split())
    assert end.endswith("kdump metadata apply p.json CONTROLLER_DIR")


@pytest.mark.parametrize(
    ("content", "status", "what"),
    [
        (None, 8, "No such file"),
        (b"", 16, "not JSON"),
        (b'{"format": "kdump metadata plan"}', 16, "not a kdump metadata collection"),
    ],
)
def test_a_file_that_is_no_collection_is_refused(
    content: bytes | None, status: int, what: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "c.json").write_bytes(content)
    outcome = plan(tmp_path, "--out", "p.json", "c.json")
    assert outcome.exit_status == status
    assert outcome.stderr.decode().startswith("kdump: c.json: ")
    assert what in outcome.stderr.decode()
