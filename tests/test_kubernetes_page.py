"""The manifests of docs/kubernetes.md and docs/scrub.md: valid, and what the plugin creates."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
from kubernetes_validate.utils import all_versions
from msgspec import yaml

from builders.kubectl_kdump import plugin_runner, printed_job
from builders.kubernetes_api import KubernetesApi, kubernetes_api
from builders.kubernetes_brokers import CRASH_LOOPS, strimzi_cluster

DOCS: Final = Path(__file__).parents[1] / "docs"
VERSIONS: Final = list(dict.fromkeys(each.removesuffix(".0") for each in all_versions()))


def manifests(page: str) -> list[dict[str, Any]]:
    """The blocks of YAML of a page; init containers as those of a pod."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    found = [yaml.decode(each) for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    return [each if "kind" in each else _pod_with(each) for each in found]


def _pod_with(part: dict[str, Any]) -> dict[str, Any]:
    spec = {**part, "containers": [{"name": "kafka", "image": "kafka"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kafka-0"}, "spec": spec}


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (each for each in manifests("kubernetes") if each["kind"] == kind)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("page", ["kubernetes", "scrub"])
def test_kubernetes_accepts_every_manifest(page: str, version: str) -> None:
    for manifest in manifests(page):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_page_names_versions_that_are_tried() -> None:
    text = (DOCS / "kubernetes.md").read_text(encoding="utf-8")
    named = re.search(r"schemas of Kubernetes ([\d.]+) to ([\d.]+)\. ", text)
    assert named is not None
    assert named[1] == VERSIONS[0]
    assert named[2] in VERSIONS


def test_the_job_is_what_the_plugin_creates() -> None:
    api = KubernetesApi()
    api.add(*strimzi_cluster(CRASH_LOOPS))
    made = printed_job(api, "my-cluster-broker-0", "--", "verify")
    shown = of_kind("Job")
    assert re.fullmatch(r"kdump-my-cluster-broker-0-[0-9a-f]{6}", shown["metadata"]["name"])
    made["metadata"]["name"] = shown["metadata"]["name"]
    assert made == shown


@pytest.mark.slow
@pytest.mark.parametrize("target", ["my-cluster-broker-0", "no-such-pod"])
def test_the_role_has_the_rights_that_the_plugin_needs(target: str, tmp_path: Path) -> None:
    with kubernetes_api() as api:
        api.add(*strimzi_cluster(None, None, None))
        api.why_pending = []
        plugin_runner(api, tmp_path)("--wait=0", target, "--", "verify")
    granted = {
        f"{verb} {resource}"
        for rule in of_kind("Role")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert "list strimzipodsets" in api.asked
    assert ("create jobs" in api.asked) == (target != "no-such-pod")
    assert api.asked <= granted


@pytest.mark.parametrize("ending", ["exit 4", "kill -9 $$"])
def test_the_report_never_keeps_a_broker_from_starting(tmp_path: Path, ending: str) -> None:
    (container,) = of_kind("Pod")["spec"]["initContainers"]
    program, option, script, *others = container["command"]
    stand_in = tmp_path / "kdump"
    stand_in.write_text(f'#!/bin/sh\necho "$@"\n{ending}\n')
    stand_in.chmod(0o755)
    script = script.replace("/opt/kdump/bin/kdump", str(stand_in))
    words = [program, option, script, *others]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "recover --dry-run /bitnami/kafka/data\n")
