"""The kubectl plugin with kubectl itself, against a server that answers as Kubernetes does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.kubectl_kdump import IMAGE, PLUGIN, plugin_runner, start_plugin
from builders.kubernetes_api import KubernetesApi, kubernetes_api, write_configuration
from builders.kubernetes_brokers import CRASH_LOOPS, RUNS, claim, pod, strimzi_cluster

pytestmark = pytest.mark.slow

Runs = Callable[..., subprocess.CompletedProcess[str]]
POD: Final = "my-cluster-broker-0"
WRITE: Final = ("--write", "--context=test", "--namespace=kafka")


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with kubernetes_api() as served:
        served.add(*strimzi_cluster(CRASH_LOOPS, RUNS, None))
        yield served


@pytest.fixture
def run(api: KubernetesApi, tmp_path: Path) -> Runs:
    return plugin_runner(api, tmp_path)


def own_pod(api: KubernetesApi) -> dict[str, Any]:
    """The pod of the Job."""
    pods = api.objects["pods"].values()
    (own,) = (each for each in pods if "job-name" in each["metadata"]["labels"])
    return own


def end(api: KubernetesApi, status: int, reason: str) -> None:
    """End kdump in its pod."""
    state = {"terminated": {"exitCode": status, "reason": reason}}
    own_pod(api)["status"]["containerStatuses"][0]["state"] = state


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_it_prints_what_kdump_prints_and_deletes_the_job(api: KubernetesApi, run: Runs) -> None:
    api.log.append(("2026-11-29T05:00:01Z", "1 Größe\n".encode()))
    done = run(POD, "--", "verify")
    assert (done.returncode, done.stdout) == (0, "kdump: valid\n1 Größe\n")
    assert "Warning" not in done.stderr
    assert api.jobs == {}
    (job,) = api.created
    path = "/apis/batch/v1/namespaces/kafka/jobs"
    assert api.changes() == [
        f"create {path}",
        f"delete {path}/{job['metadata']['name']} Foreground",
    ]


@pytest.mark.parametrize("status", [1, 4, 12])
def test_the_exit_status_is_that_of_kdump(api: KubernetesApi, run: Runs, status: int) -> None:
    api.outcome = {"terminated": {"exitCode": status, "reason": "Error"}}
    done = run(POD, "--", "verify")
    assert (done.returncode, done.stdout) == (status, "kdump: valid\n")
    assert api.jobs == {}


def test_kdump_without_enough_memory(api: KubernetesApi, run: Runs) -> None:
    api.outcome = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    done = run(POD, "--", "verify")
    assert done.returncode == 137
    assert "raise --memory" in done.stderr


def test_kubectl_finds_it_as_a_plugin(api: KubernetesApi, tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    (tmp_path / "kubectl-kdump").symlink_to(PLUGIN)
    env = write_configuration(api, tmp_path) | {"KDUMP_IMAGE": IMAGE}
    env["PATH"] = f"{tmp_path}{os.pathsep}{env['PATH']}"
    words = ["kubectl", "kdump", "-n", "kafka", POD, "--", "verify"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "kdump: valid\n")


def test_a_preview_creates_nothing_and_may_be_applied(
    api: KubernetesApi, run: Runs, tmp_path: Path
) -> None:
    done = run("--dry-run", "my-cluster-broker-1", "--", "verify")
    assert "do not create this now: my-cluster-broker-1 is running" in done.stderr
    assert (done.returncode, api.changes()) == (0, [])
    env = write_configuration(api, tmp_path)
    subprocess.run(
        ["kubectl", "create", "-f", "-"], env=env, input=done.stdout, text=True, check=True
    )
    (job,) = api.created
    assert job["metadata"]["name"].startswith("kdump-my-cluster-broker-1-")


def test_a_connection_to_the_log_that_breaks(api: KubernetesApi, run: Runs) -> None:
    stamps = ["05:00:01.1", "05:00:01.2", "05:00:01.25", "05:00:02", "05:00:02.000000001"]
    api.log = [(f"2026-11-29T{each}Z", f"{each}\n".encode()) for each in stamps]
    api.cuts = [2, 1, 4]
    done = run(POD, "--", "verify")
    assert done.stdout.splitlines() == stamps


def test_a_last_line_without_an_end(api: KubernetesApi, run: Runs) -> None:
    api.log.append(("2026-11-29T05:00:01Z", b"no end"))
    assert run(POD, "--", "verify").stdout == "kdump: valid\nno end"


def test_a_context_that_is_switched_meanwhile_is_not_used(
    api: KubernetesApi, run: Runs, tmp_path: Path
) -> None:
    """The Job is followed and deleted where it was created."""

    def switch() -> None:
        configuration = json.loads((tmp_path / "config").read_text())
        elsewhere = {"name": "other", "cluster": {"server": "http://127.0.0.1:9"}}
        configuration["clusters"].append(elsewhere)
        context = {"name": "other", "context": {"cluster": "other", "namespace": "default"}}
        configuration["contexts"].append(context)
        configuration["contexts"][0]["context"]["namespace"] = "default"
        (new := tmp_path / "new").write_text(
            json.dumps(configuration | {"current-context": "other"})
        )
        new.rename(tmp_path / "config")

    api.on_create = switch

    done = run(POD, "--", "verify")

    assert (done.returncode, done.stdout) == (0, "kdump: valid\n")
    assert not api.jobs


def test_warnings_of_the_server_are_said_once(api: KubernetesApi, run: Runs) -> None:
    api.warning = "would violate PodSecurity"
    done = run(POD, "--", "verify")
    assert (done.returncode, done.stdout) == (0, "kdump: valid\n")
    assert done.stderr.count("would violate PodSecurity") <= 3  # kubectl logs has its own


# What keeps it from running.


@pytest.mark.parametrize("forbidden", ["list pods", "list persistentvolumeclaims", "create jobs"])
def test_without_the_rights_it_does_nothing(api: KubernetesApi, run: Runs, forbidden: str) -> None:
    api.forbidden.add(forbidden)
    done = run(POD, "--", "verify")
    assert done.returncode == 8
    assert "(Forbidden)" in done.stderr
    assert f'{forbidden.partition(" ")[2]} is forbidden: User "eve"' in done.stderr
    assert api.jobs == {}


def test_what_was_refused_is_not_left(api: KubernetesApi, run: Runs) -> None:
    api.forbidden |= {"create jobs", "delete jobs"}
    done = run(POD, "--", "verify")
    assert done.returncode == 8
    assert "left" not in done.stderr


def test_without_the_right_to_delete_it_says_what_is_left(api: KubernetesApi, run: Runs) -> None:
    api.forbidden.add("delete jobs")
    done = run(POD, "--", "verify")
    (name,) = api.jobs
    assert (done.returncode, done.stdout) == (0, "kdump: valid\n")
    assert f"left: job/{name} in namespace kafka, and its pod" in done.stderr
    assert f"delete it with: kubectl delete job/{name} --namespace=kafka" in done.stderr


def test_a_log_that_may_not_be_read_is_left(api: KubernetesApi, run: Runs) -> None:
    api.forbidden.add("get pods/log")
    done = run(POD, "--", "verify")
    (name,) = api.jobs
    assert done.returncode == 0
    assert f"kubectl logs job/{name} --namespace=kafka" in done.stderr


def test_a_server_without_strimzi(api: KubernetesApi, run: Runs) -> None:
    api.has_strimzi = False
    done = run("kafka-7", "--", "verify")
    assert done.returncode == 8
    assert "kafka-7 is not a pod" in done.stderr
    assert "resource type" not in done.stderr


def test_without_kubectl(tmp_path: Path) -> None:
    words = [f"--image={IMAGE}", POD, "--", "verify"]
    env = {"PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, PLUGIN, *words], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 8
    assert done.stderr == (
        "kubectl kdump: kubectl is not on the PATH: install it, or name its folder in PATH\n"
    )


def test_a_job_that_is_not_scheduled(api: KubernetesApi, run: Runs) -> None:
    why = "0/3 nodes are available: 3 Insufficient memory."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    api.why_pending = [condition | {"message": why}]
    done = run("--wait=0", POD, "--", "verify")
    assert done.returncode == 8
    assert f"kdump did not start within 0 s (--wait): Unschedulable: {why}" in done.stderr
    assert api.jobs == {}


def test_a_job_whose_pod_is_not_created(api: KubernetesApi, run: Runs) -> None:
    api.has_pods = False

    def refuse() -> None:
        (name,) = api.jobs
        about = {"kind": "Job", "name": name}
        for number, message in ((1, "must specify limits.memory"), (0, "an older one")):
            event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"e{number}"}}
            event |= {"involvedObject": about, "type": "Warning", "reason": "FailedCreate"}
            event |= {"message": message, "lastTimestamp": f"2026-11-29T05:00:0{number}Z"}
            api.add(event)

    api.on_create = refuse
    done = run("--wait=0", POD, "--", "verify")
    assert done.returncode == 8
    assert "(--wait): FailedCreate: must specify limits.memory" in done.stderr
    assert api.jobs == {}


def test_a_pod_that_was_evicted(api: KubernetesApi, run: Runs) -> None:
    def evict() -> None:
        own_pod(api)["status"] = {"phase": "Failed", "reason": "Evicted", "message": "low on disk"}

    api.on_create = evict
    done = run(POD, "--", "verify")
    assert done.returncode == 8
    assert "kdump did not start: Evicted: low on disk" in done.stderr


# Brokers that start meanwhile.


def test_a_broker_that_starts_before_kdump_keeps_it_from_writing(
    api: KubernetesApi, run: Runs
) -> None:
    api.objects["pods"].clear()
    api.why_pending = []
    api.on_create = lambda: api.add(pod(POD, {"data-0-my-cluster-broker-0": "/d"}, RUNS))
    done = run(*WRITE, POD, "--", "recover")
    assert done.returncode == 8
    assert f"{POD} is running (kafka): kdump was not started, nothing was written" in done.stderr
    assert api.jobs == {}


@pytest.mark.parametrize(("state", "restarts"), [(RUNS, 7), (CRASH_LOOPS, 8)])
def test_a_broker_that_starts_while_kdump_reads_is_named(
    api: KubernetesApi, run: Runs, state: dict[str, Any], restarts: int
) -> None:
    mounts = {"data-0-my-cluster-broker-0": "/d"}
    api.on_create = lambda: api.add(pod(POD, mounts, state, restarts=restarts))
    done = run(POD, "--", "verify")
    assert (done.returncode, done.stdout) == (0, "kdump: valid\n")
    assert f"{POD} was started while kdump ran" in done.stderr


def test_nothing_is_written_while_a_pod_may_start(api: KubernetesApi, run: Runs) -> None:
    done = run(*WRITE, POD, "--", "recover")
    assert done.returncode == 8
    assert "may start at any time: to write, no other pod may have the claim" in done.stderr
    assert api.changes() == []


def test_a_claim_of_two_pods(api: KubernetesApi, run: Runs) -> None:
    api.add(pod("copy", {"data-1-my-cluster-broker-0": "/d"}, RUNS), claim("other"))
    done = run(POD, "--", "verify")
    assert done.returncode == 8
    assert "copy is running (kafka)" in done.stderr


# ^C.


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press ^C: the signal goes to kubectl, too."""
    os.killpg(process.pid, signal.SIGINT)


_INTERRUPTED_CHILD: Final = """
import os, signal, sys
from builders.kubectl_kdump import PLUGIN_MODULE
PLUGIN_MODULE.Signals()
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGINT))
sys.stdout.write(PLUGIN_MODULE.Kubectl([]).run("version"))
"""


def test_a_signal_while_kubectl_is_started_is_left_to_the_plugin(tmp_path: Path) -> None:
    (kubectl := tmp_path / "kubectl").write_text("#!/bin/sh\nkill -INT $$\necho $1\n")
    kubectl.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    tests = str(Path(__file__).parent)

    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_CHILD],
        env=os.environ | {"PATH": path, "PYTHONPATH": tests},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "version\n", "")


def test_interrupted_before_anything_was_created(api: KubernetesApi, tmp_path: Path) -> None:
    process = start_plugin(api, tmp_path, POD, "--", "verify")
    wait_until(lambda: bool(api.requests))
    interrupt(process)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert api.jobs == {}


def test_interrupted_while_the_job_is_created(api: KubernetesApi, tmp_path: Path) -> None:
    api.answering.clear()
    process = start_plugin(api, tmp_path, POD, "--", "verify")
    wait_until(api.received.is_set)
    interrupt(process)
    api.answering.set()
    printed, said = process.communicate(timeout=60)
    assert (process.returncode, printed, said.count("\n")) == (130, "", 1), said
    assert len(api.created) == 1
    assert api.jobs == {}


def test_interrupted_while_the_job_waits(api: KubernetesApi, tmp_path: Path) -> None:
    api.why_pending = []
    process = start_plugin(api, tmp_path, POD, "--", "verify")
    wait_until(lambda: bool(api.jobs))
    interrupt(process)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert api.jobs == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_while_kdump_runs(api: KubernetesApi, tmp_path: Path, number: int) -> None:
    api.outcome = RUNS
    process = start_plugin(api, tmp_path, POD, "--", "verify")
    assert process.stdout is not None
    assert process.stdout.readline() == "kdump: valid\n"
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert api.jobs == {}


def test_interrupted_while_the_job_is_deleted(api: KubernetesApi, tmp_path: Path) -> None:
    api.is_stuck = True
    process = start_plugin(api, tmp_path, POD, "--", "verify")
    wait_until(lambda: any(each.startswith("delete") for each in api.requests))
    interrupt(process)
    _, said = process.communicate(timeout=60)
    (name,) = api.jobs
    assert process.returncode == 130
    assert f"left: job/{name} in namespace kafka, and its pod, which may still run" in said


def test_output_that_nobody_reads_any_more(api: KubernetesApi, tmp_path: Path) -> None:
    api.outcome = RUNS
    process = start_plugin(api, tmp_path, POD, "--", "verify")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    api.log.append(("2026-11-29T05:00:01Z", b"more\n"))
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert api.jobs == {}


def test_kdump_that_ends_after_the_connection_did(api: KubernetesApi, tmp_path: Path) -> None:
    api.outcome = RUNS
    process = start_plugin(api, tmp_path, POD, "--", "verify")
    assert process.stdout is not None
    assert process.stdout.readline() == "kdump: valid\n"
    api.log.append(("2026-11-29T05:00:01Z", b"the end\n"))
    end(api, 4, "Error")
    printed, _ = process.communicate(timeout=60)
    assert (process.returncode, printed) == (4, "the end\n")


def test_a_server_that_fails_for_a_moment(api: KubernetesApi, tmp_path: Path) -> None:
    api.outcome = RUNS
    process = start_plugin(api, tmp_path, POD, "--", "verify")
    assert process.stdout is not None
    assert process.stdout.readline() == "kdump: valid\n"
    api.forbidden.add("list pods")
    before = len(api.requests)
    wait_until(lambda: api.requests[before:].count("GET /api/v1/namespaces/kafka/pods") > 1)
    end(api, 0, "Completed")
    api.forbidden.clear()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert api.jobs == {}
