"""The Job of the kubectl plugin: what it mounts, as which user and where it runs, what is refused.

Each Job is printed as YAML, read again, and validated against the schemas of Kubernetes.
"""

from __future__ import annotations

import ast
import subprocess
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import yaml

from builders.kubectl_kdump import (
    IMAGE,
    PLUGIN,
    PLUGIN_MODULE,
    RecordedKubectl,
    printed_job,
)
from builders.kubernetes_api import KubernetesApi
from builders.kubernetes_brokers import (
    CRASH_LOOPS,
    RUNS,
    bitnami,
    claim,
    config_map,
    confluent,
    pod,
    stateful_set,
    strimzi_cluster,
)

Problem = PLUGIN_MODULE.Problem
USER = {"runAsUser": 1000}


@pytest.fixture
def api() -> KubernetesApi:
    return KubernetesApi()


def spec_of(job: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return spec


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any]
    (container,) = spec_of(job)["containers"]
    return container


def mounted(job: dict[str, Any]) -> dict[str, str]:
    """Mount path by claim."""
    claims = {
        each["name"]: each["persistentVolumeClaim"]["claimName"]
        for each in spec_of(job)["volumes"]
        if "persistentVolumeClaim" in each
    }
    mounts = container_of(job)["volumeMounts"]
    return {claims[each["name"]]: each["mountPath"] for each in mounts if each["name"] in claims}


def test_a_broker_of_strimzi_with_two_disks(api: KubernetesApi) -> None:
    api.add(*strimzi_cluster(RUNS, CRASH_LOOPS, RUNS))
    job = printed_job(api, "my-cluster-broker-1", "--", "verify", "--details")
    assert container_of(job)["args"] == [
        *("verify", "--details"),
        "/var/lib/kafka/data-0/kafka-log1",
        "/var/lib/kafka/data-1/kafka-log1",
    ]
    assert mounted(job) == {
        "data-0-my-cluster-broker-1": "/var/lib/kafka/data-0",
        "data-1-my-cluster-broker-1": "/var/lib/kafka/data-1",
    }


def test_a_pod_that_was_deleted_is_found_in_its_pod_set(api: KubernetesApi) -> None:
    api.add(*strimzi_cluster(None, None, None))
    job = printed_job(api, "my-cluster-broker-2", "--", "ls")
    assert container_of(job)["args"][-1] == "/var/lib/kafka/data-1/kafka-log2"
    assert "affinity" not in spec_of(job)


def test_a_pod_that_was_deleted_after_its_pod_set_is_like_the_others(api: KubernetesApi) -> None:
    api.add(*strimzi_cluster(RUNS, None, RUNS))
    api.objects["strimzipodsets"].clear()
    for each in api.objects["pods"].values():
        volume = {"name": "conf", "configMap": {"name": each["metadata"]["name"]}}
        each["spec"]["volumes"].append(volume)
        each["spec"]["securityContext"] = {"runAsUser": 4711}
    for node in (0, 1, 2):
        text = "log.dirs=" + ",".join(f"/var/lib/kafka/data-{n}/kafka-log{node}" for n in (0, 1))
        api.add(config_map(f"my-cluster-broker-{node}", server__config=text))
    for target in ("my-cluster-broker-1", "data-1-my-cluster-broker-1"):
        job = printed_job(api, target, "--", "ls")
        assert container_of(job)["args"][-1] == "/var/lib/kafka/data-1/kafka-log1"
        assert "data-1-my-cluster-broker-1" in mounted(job)
        assert spec_of(job)["securityContext"]["runAsUser"] == 4711
        assert "affinity" not in spec_of(job)
    with pytest.raises(Problem, match="my-cluster-broker-3 is not a pod"):
        printed_job(api, "my-cluster-broker-3", "--", "ls")


@pytest.mark.parametrize("target", ["my-cluster-broker-1", "data-1-my-cluster-broker-1"])
def test_a_broker_of_strimzi_of_which_only_claims_are_left(api: KubernetesApi, target: str) -> None:
    api.add(*strimzi_cluster(None, None, None))
    api.objects["strimzipodsets"].clear()
    job = printed_job(api, target, "--", "ls")
    assert mounted(job)["data-1-my-cluster-broker-1"] == "/var/lib/kafka/data-1"
    assert container_of(job)["args"][-1] == "/var/lib/kafka/data-1/kafka-log1"
    assert spec_of(job)["securityContext"]["runAsUser"] == 1001


def test_a_broker_of_confluent(api: KubernetesApi) -> None:
    api.add(*confluent())
    job = printed_job(api, "kafka-0", "--", "verify")
    assert container_of(job)["args"] == ["verify", "/mnt/data/data0/logs"]
    assert mounted(job) == {"data0-kafka-0": "/mnt/data/data0"}


def test_a_broker_of_bitnami_by_its_config_map(api: KubernetesApi) -> None:
    api.add(*bitnami())
    job = printed_job(api, "r-kafka-controller-2", "--", "verify")
    assert container_of(job)["args"] == ["verify", "/bitnami/kafka/data"]
    assert mounted(job) == {"data-r-kafka-controller-2": "/bitnami/kafka"}


def test_a_broker_of_bitnami_whose_config_map_cannot_be_read(api: KubernetesApi) -> None:
    api.add(*bitnami())
    api.objects["configmaps"].clear()
    job = printed_job(api, "r-kafka-controller-2", "--", "verify")
    assert container_of(job)["args"] == ["verify", "/bitnami/kafka/data"]


@pytest.mark.parametrize(
    ("env", "log_dirs"),
    [
        ({"KAFKA_LOG_DIRS": "/d0/logs,/d1/logs"}, ["/d0/logs", "/d1/logs"]),
        ({"KAFKA_CFG_LOG_DIR": "/d0/"}, ["/d0"]),
        ({"D": "/d1", "KAFKA_LOG_DIRS": "$(D)/logs"}, ["/d1/logs"]),
        ({"KAFKA_LOG_DIRS": "/d0", "KAFKA_METADATA_LOG_DIR": "/d1/meta"}, ["/d0", "/d1/meta"]),
    ],
)
def test_log_directories_of_variables(
    api: KubernetesApi, env: dict[str, str], log_dirs: list[str]
) -> None:
    mounts = {"c0": "/d0", "c1": "/d1"}
    api.add(pod("b-0", mounts, CRASH_LOOPS, env=env, context=USER), claim("c0"), claim("c1"))
    job = printed_job(api, "b-0", "--", "ls")
    assert container_of(job)["args"] == ["ls", *log_dirs]


@pytest.mark.parametrize(
    "text",
    [
        "log.dirs = /d0/x, /d0/y\n",
        "a=b\nlog.dirs=/d0/x,/d0/y/\r\nc=d",
        "# log.dirs=/d0/z\nlog.dir: /d0/x,/d0/y\nlogs.dir=/z\n#log.dirs=/d0/z",
        "log.dirs=/d0/x,\\\n   /d0/y\n",
        "log.dir=/d0/z\nlog.dirs=/d0/x,/d0/y",
    ],
)
def test_log_directories_of_a_config_map(api: KubernetesApi, text: str) -> None:
    volume = {"name": "c", "projected": {"sources": [{"configMap": {"name": "conf"}}]}}
    broker = pod("b-0", {"c0": "/d0"}, CRASH_LOOPS, context=USER, volumes=(volume,))
    api.add(broker, claim("c0"), config_map("conf", server__properties=text))
    assert container_of(printed_job(api, "b-0", "--", "ls"))["args"] == ["ls", "/d0/x", "/d0/y"]


def test_log_directories_of_the_command(api: KubernetesApi) -> None:
    broker = pod("b-0", {"c0": "/d0"}, CRASH_LOOPS, context=USER)
    start = "exec kafka-server-start.sh server.properties --override log.dirs=/d0/logs"
    broker["spec"]["containers"][0]["command"] = ["sh", "-c", start]
    api.add(broker, claim("c0"))
    assert container_of(printed_job(api, "b-0", "--", "ls"))["args"] == ["ls", "/d0/logs"]


def test_a_log_directory_on_no_claim_is_named(
    api: KubernetesApi, capsys: pytest.CaptureFixture[str]
) -> None:
    env = {"KAFKA_LOG_DIRS": "/d0/logs,/scratch"}
    api.add(pod("b-0", {"c0": "/d0"}, CRASH_LOOPS, env=env, context=USER), claim("c0"))
    assert container_of(printed_job(api, "b-0", "--", "ls"))["args"] == ["ls", "/d0/logs"]
    assert "left out, on no claim that is mounted: /scratch" in capsys.readouterr().err


def test_log_directories_that_nothing_names_must_be_named(api: KubernetesApi) -> None:
    api.add(pod("b-0", {"c0": "/d0"}, CRASH_LOOPS, context=USER), claim("c0"))
    with pytest.raises(Problem, match=r"name them with --log-dirs, below /d0$"):
        printed_job(api, "b-0", "--", "ls")
    job = printed_job(api, "--log-dirs=/d0/a,/d0/b", "b-0", "--", "ls")
    assert container_of(job)["args"] == ["ls", "/d0/a", "/d0/b"]
    with pytest.raises(Problem, match="/d1/a: not below /d0"):
        printed_job(api, "--log-dirs=/d1/a", "b-0", "--", "ls")


def test_claims_of_other_things_are_not_mounted(api: KubernetesApi) -> None:
    mounts = {"c0": "/var/lib/kafka/data", "plugins": "/plugins"}
    api.add(pod("b-0", mounts, CRASH_LOOPS, context=USER), claim("c0"), claim("plugins"))
    assert mounted(printed_job(api, "b-0", "--", "ls")) == {"c0": "/var/lib/kafka/data"}


def test_a_part_of_a_volume_stays_a_part(api: KubernetesApi) -> None:
    broker = pod("b-0", {"c0": "/var/lib/kafka/data"}, CRASH_LOOPS, context=USER)
    container = broker["spec"]["containers"][0]
    container["env"] = [{"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    container["volumeMounts"][0]["subPathExpr"] = "kafka/$(P)"
    api.add(broker, claim("c0"))
    (mount, _tmp) = container_of(printed_job(api, "b-0", "--", "ls"))["volumeMounts"]
    assert mount["subPath"] == "kafka/b-0"


def test_one_disk_by_its_claim(api: KubernetesApi) -> None:
    api.add(*strimzi_cluster(RUNS, CRASH_LOOPS, RUNS))
    job = printed_job(api, "data-1-my-cluster-broker-1", "--", "ls")
    assert container_of(job)["args"] == ["ls", "/var/lib/kafka/data-1/kafka-log1"]
    assert list(mounted(job)) == ["data-1-my-cluster-broker-1"]


def test_a_claim_that_no_pod_has(api: KubernetesApi) -> None:
    api.add(claim("old"))
    with pytest.raises(Problem, match="which broker has old: name them with --log-dirs"):
        printed_job(api, "old", "--", "ls")
    with pytest.raises(Problem, match="--run-as"):
        printed_job(api, "--log-dirs=/data/old/kafka-log3", "old", "--", "ls")
    words = ("--log-dirs=/data/old/kafka-log3", "--run-as=1001:0", "old")
    job = printed_job(api, *words, "--", "ls")
    assert mounted(job) == {"old": "/data/old"}
    assert spec_of(job)["securityContext"]["runAsUser"] == 1001


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (("my-cluster-broker-0", "my-cluster-broker-1"), "run it for each broker"),
        (("data-0-my-cluster-broker-0", "data-0-my-cluster-broker-1"), "of 2 brokers"),
        (("my-cluster-broker-3",), "is not a pod"),
        (("pvc/my-cluster-broker-0",), "is not a volume claim"),
        (("pod/data-0-my-cluster-broker-0",), "is not a pod"),
        (("deployment/kafka",), "as POD, pod/POD or pvc/PVC"),
        (("a b\n$(x)",), "is not a pod"),
        (("",), "is not a pod"),
        (("pod/",), "is not a pod"),
    ],
)
def test_what_is_not_one_broker(api: KubernetesApi, targets: tuple[str, ...], said: str) -> None:
    api.add(*strimzi_cluster(CRASH_LOOPS, CRASH_LOOPS, RUNS))
    with pytest.raises(Problem, match=said):
        printed_job(api, *targets, "--", "ls")


def test_what_could_not_be_read_is_said_where_nothing_is_found(api: KubernetesApi) -> None:
    api.forbidden.add("list statefulsets")
    with pytest.raises(Problem, match=r"(?s)kafka-0 is not a pod.*statefulsets is forbidden"):
        printed_job(api, "kafka-0", "--", "ls")


def test_a_claim_that_is_gone(api: KubernetesApi) -> None:
    api.add(*strimzi_cluster(CRASH_LOOPS))
    del api.objects["persistentvolumeclaims"]["data-1-my-cluster-broker-0"]
    with pytest.raises(Problem, match="there is no volume claim data-1-my-cluster-broker-0"):
        printed_job(api, "my-cluster-broker-0", "--", "ls")


# As which user.


@pytest.mark.parametrize(
    ("of_pod", "of_container", "expected"),
    [
        ({"runAsUser": 1000, "fsGroup": 2000}, {}, {"runAsUser": 1000, "runAsGroup": 2000}),
        (
            {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000},
            {},
            {"runAsUser": 1000, "runAsGroup": 1000, "supplementalGroups": [2000]},
        ),
        ({"runAsUser": 1}, {"runAsUser": 5, "runAsGroup": 6}, {"runAsUser": 5, "runAsGroup": 6}),
        (
            {"runAsUser": 7, "supplementalGroups": [9, 8], "seLinuxOptions": {"level": "s0:c1"}},
            {},
            {"supplementalGroups": [8, 9], "seLinuxOptions": {"level": "s0:c1"}},
        ),
    ],
)
def test_kdump_runs_as_the_broker(
    api: KubernetesApi,
    of_pod: dict[str, Any],
    of_container: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    broker = pod("b-0", {"c0": "/var/lib/kafka/data"}, CRASH_LOOPS, context=of_pod)
    broker["spec"]["containers"][0]["securityContext"] = of_container
    api.add(broker, claim("c0"))
    context = spec_of(printed_job(api, "b-0", "--", "ls"))["securityContext"]
    assert expected.items() <= context.items()
    assert "fsGroup" not in context
    assert context["runAsNonRoot"] is True


def test_the_user_that_the_container_was_seen_to_run_as(api: KubernetesApi) -> None:
    broker = pod("b-0", {"c0": "/var/lib/kafka/data"}, CRASH_LOOPS)
    seen = {"linux": {"uid": 1000, "gid": 1002, "supplementalGroups": [1002]}}
    broker["status"]["containerStatuses"][0]["user"] = seen
    api.add(broker, claim("c0"))
    context = spec_of(printed_job(api, "b-0", "--", "ls"))["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (1000, 1002)


def test_strimzi_runs_as_the_user_of_its_image(api: KubernetesApi) -> None:
    api.add(*strimzi_cluster(CRASH_LOOPS))
    context = spec_of(printed_job(api, "my-cluster-broker-0", "--", "ls"))["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (1001, 0)


def test_root_stays_root(api: KubernetesApi) -> None:
    broker = pod("b-0", {"c0": "/var/lib/kafka/data"}, CRASH_LOOPS, context={"runAsUser": 0})
    api.add(broker, claim("c0"))
    context = spec_of(printed_job(api, "b-0", "--", "ls"))["securityContext"]
    assert context["runAsUser"] == 0
    assert "runAsNonRoot" not in context


# Where, and how.


def test_it_runs_on_the_node_of_a_pod_that_has_the_volume(api: KubernetesApi) -> None:
    api.add(*strimzi_cluster(CRASH_LOOPS))
    spec = spec_of(printed_job(api, "my-cluster-broker-0", "--", "ls"))
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    field = {"key": "metadata.name", "operator": "In", "values": ["node-b"]}
    assert required["nodeSelectorTerms"] == [{"matchFields": [field]}]
    assert spec["tolerations"] == [{"key": "kafka", "operator": "Exists"}]


def test_a_volume_of_many_nodes_is_read_on_any(api: KubernetesApi) -> None:
    api.add(pod("b-0", {"c0": "/var/lib/kafka/data"}, CRASH_LOOPS, context=USER))
    api.add(claim("c0", "ReadWriteMany"))
    assert "affinity" not in spec_of(printed_job(api, "b-0", "--", "ls"))


@pytest.mark.parametrize("is_written", [False, True])
def test_volumes_are_mounted_read_only_unless_write_is_given(
    api: KubernetesApi, is_written: bool
) -> None:
    api.add(*strimzi_cluster(None, None, None))
    words = ("--write", "--context=c", "--namespace=kafka") if is_written else ()
    job = printed_job(api, *words, "my-cluster-broker-0", "--", "recover")
    *claims, tmp = container_of(job)["volumeMounts"]
    assert [each.get("readOnly", False) for each in claims] == [not is_written] * 2
    assert "readOnly" not in tmp


def test_it_has_no_rights_and_may_be_read_for_a_day(api: KubernetesApi) -> None:
    api.add(*confluent())
    job = printed_job(api, "kafka-0", "--", "ls")
    context = container_of(job)["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert spec_of(job)["automountServiceAccountToken"] is False
    assert spec_of(job)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (job["spec"]["backoffLimit"], job["spec"]["ttlSecondsAfterFinished"]) == (0, 86400)


def test_memory_and_processors_are_requested_and_limited(api: KubernetesApi) -> None:
    api.add(*confluent())
    job = printed_job(api, "--memory=2Gi", "--cpu=500m", "kafka-0", "--", "ls")
    amounts = {"memory": "2Gi", "cpu": "500m"}
    assert container_of(job)["resources"] == {"requests": amounts, "limits": amounts}


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (["diff", "{}", "--details"], ["diff", "/mnt/data/data0/logs", "--details"]),
        (
            ["dump-segment", "/mnt/data/data0/logs/a-0/00000000000000000000.log"],
            ["dump-segment", "/mnt/data/data0/logs/a-0/00000000000000000000.log"],
        ),
        (["grep", "$(HOME)$$é$"], ["grep", "$$(HOME)$$$$é$$", "/mnt/data/data0/logs"]),
        (["grep", "/mnt/data/data01"], ["grep", "/mnt/data/data01", "/mnt/data/data0/logs"]),
    ],
)
def test_the_command_of_kdump(api: KubernetesApi, command: list[str], args: list[str]) -> None:
    api.add(*confluent())
    assert container_of(printed_job(api, "kafka-0", "--", *command))["args"] == args


def test_kdump_that_ended_keeps_its_status_whatever_fails_then(
    api: KubernetesApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PLUGIN_MODULE, "PATIENCE_S", 0)
    api.add(*strimzi_cluster(CRASH_LOOPS, RUNS, None))
    options = PLUGIN_MODULE.parse([f"--image={IMAGE}", "my-cluster-broker-0", "--", "verify"])
    kubectl = RecordedKubectl(api)
    broker = PLUGIN_MODULE.find_broker(kubectl, options, kubectl.objects("pods"))
    job = PLUGIN_MODULE.planned_job(broker, options, ())
    api.forbidden.add("list pods")

    PLUGIN_MODULE.Run(kubectl, None, options, broker, job, ())._report_starts()

    assert "cannot tell whether a pod was started" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["b-0", "x." * 100 + "b-0", "a" * 253])
def test_names_of_jobs_are_values_of_labels(api: KubernetesApi, name: str) -> None:
    api.add(pod(name, {"c0": "/var/lib/kafka/data"}, CRASH_LOOPS, context=USER), claim("c0"))
    made = printed_job(api, name, "--", "ls")["metadata"]["name"]
    assert len(made) <= 63
    assert all(each.isalnum() or each == "-" for each in made)
    assert "--" not in made


# What is refused.


def refusal_of(api: KubernetesApi, *words: str) -> str:
    options = PLUGIN_MODULE.parse([f"--image={IMAGE}", *words, "b-0", "--", "verify"])
    pods = list(api.objects["pods"].values())
    mounts = (PLUGIN_MODULE.Mount("c0", "/d", "", ("ReadWriteOnce",)),)
    broker = PLUGIN_MODULE.Broker("b-0", "kafka", mounts, ("/d",), PLUGIN_MODULE.User(1))
    holders = PLUGIN_MODULE.holders_of(pods, {"c0"})
    return str(PLUGIN_MODULE.refusal(holders, broker, write=options.write))


WRITE = ("--write", "--context=c", "-n", "kafka")


def test_a_broker_that_runs_is_not_read(api: KubernetesApi) -> None:
    api.add(pod("b-0", {"c0": "/d"}, RUNS))
    assert refusal_of(api).startswith("b-0 is running (kafka): stop the broker")


def test_a_broker_that_waits_is_read_and_not_written(api: KubernetesApi) -> None:
    api.add(pod("b-0", {"c0": "/d"}, CRASH_LOOPS))
    assert refusal_of(api) == ""
    assert "b-0 is not running, but may start at any time: to write" in refusal_of(api, *WRITE)


def test_another_pod_that_has_the_claim_counts(api: KubernetesApi) -> None:
    api.add(pod("b-0", {"c0": "/d"}, CRASH_LOOPS), pod("copy", {"c0": "/x"}, RUNS))
    assert refusal_of(api).startswith("copy is running")
    assert "b-0 is not running" in refusal_of(api, *WRITE)


def test_a_container_without_the_volume_may_run(api: KubernetesApi) -> None:
    broker = pod("b-0", {"c0": "/d"}, CRASH_LOOPS)
    broker["spec"]["containers"].append({"name": "exporter", "image": "e"})
    broker["status"]["containerStatuses"].append({"name": "exporter", "state": RUNS})
    api.add(broker)
    assert refusal_of(api) == ""


def test_an_init_container_with_the_volume_counts(api: KubernetesApi) -> None:
    broker = pod("b-0", {"c0": "/d"}, CRASH_LOOPS)
    init = {"name": "chown", "image": "i", "volumeMounts": [{"name": "v0", "mountPath": "/d"}]}
    broker["spec"]["initContainers"] = [init]
    broker["status"]["initContainerStatuses"] = [{"name": "chown", "state": RUNS}]
    api.add(broker)
    assert refusal_of(api).startswith("b-0 is running (chown)")


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_a_pod_of_a_node_that_is_not_heard_of_may_run(api: KubernetesApi, phase: str) -> None:
    broker = pod("b-0", {"c0": "/d"}, CRASH_LOOPS)
    broker["status"] = {"phase": phase, "reason": "NodeLost"}
    api.add(broker)
    assert refusal_of(api).startswith("b-0 is running")


def test_a_pod_that_is_being_deleted_counts(api: KubernetesApi) -> None:
    broker = pod("b-0", {"c0": "/d"}, CRASH_LOOPS)
    broker["metadata"]["deletionTimestamp"] = "2026-11-29T05:00:00Z"
    api.add(broker)
    assert refusal_of(api).startswith("b-0 is being deleted")


def test_a_pod_that_has_ended_does_not_count(api: KubernetesApi) -> None:
    broker = pod("b-0", {"c0": "/d"}, {"terminated": {"exitCode": 1}})
    broker["status"]["phase"] = "Failed"
    api.add(broker)
    assert refusal_of(api, *WRITE) == ""


def test_a_claim_of_one_pod_is_not_given_to_two(api: KubernetesApi) -> None:
    api.add(pod("b-0", {"c0": "/var/lib/kafka/data"}, CRASH_LOOPS, context=USER))
    mounts = (PLUGIN_MODULE.Mount("c0", "/d", "", ("ReadWriteOncePod",)),)
    broker = PLUGIN_MODULE.Broker("b-0", "kafka", mounts, ("/d",), PLUGIN_MODULE.User(1))
    holders = PLUGIN_MODULE.holders_of(api.objects["pods"].values(), {"c0"})
    said = PLUGIN_MODULE.refusal(holders, broker, write=False)
    assert said == "b-0 has c0, which only one pod may have: delete the pod"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["b-0"], "name a command of kdump after --"),
        (["b-0", "--"], "name a command of kdump after --"),
        (["--", "verify"], "required: POD"),
        (["--write", "b-0", "--", "recover"], "--write requires --context and --namespace"),
        (["--write", "-n", "x", "b-0", "--", "recover"], "--write requires"),
        (["--run-as=kafka", "b-0", "--", "ls"], "--run-as: 'kafka' is not UID or UID:GID"),
        (["--run-as=-1:0", "b-0", "--", "ls"], "--run-as: '-1:0' is not UID"),
        (["--wait=nan", "b-0", "--", "ls"], "--wait: 'nan' is not a number of seconds"),
        (["--wait=inf", "b-0", "--", "ls"], "--wait: 'inf' is not a number of seconds"),
        (["--wait=-1", "b-0", "--", "ls"], "--wait: '-1' is not a number of seconds"),
        (["--wait=5m", "b-0", "--", "ls"], "--wait: '5m' is not a number of seconds"),
        (["b-0", "--", "grep", "\udcff"], "not UTF-8"),
        (["--image=", "b-0", "--", "ls"], "--image"),
    ],
)
def test_wrong_command_lines(words: list[str], said: str) -> None:
    with pytest.raises(Problem, match=said) as raised:
        PLUGIN_MODULE.parse([f"--image={IMAGE}", *words])
    assert raised.value.status == 16


# The manifest.


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_yaml_is_read_as_what_was_written(value: object) -> None:
    whole = {"a": value, "b": [value, [value]]}
    assert yaml.decode("\n".join(PLUGIN_MODULE.yaml_lines(whole))) == whole


@pytest.mark.parametrize("version", ["1.25", "1.29", "1.33"])
def test_older_versions_of_kubernetes_know_every_field(api: KubernetesApi, version: str) -> None:
    api.add(*strimzi_cluster(CRASH_LOOPS))
    job = printed_job(api, "--memory=1Gi", "my-cluster-broker-0", "--", "ls")
    kubernetes_validate.validate(job, version, strict=True)


def test_a_stateful_set_without_numbers_is_no_broker(api: KubernetesApi) -> None:
    template = pod("t", {}, context=USER)
    api.add(*stateful_set("kafka", template, {"data": "/var/lib/kafka/data"}))
    job = printed_job(api, "kafka-1", "--", "ls")
    assert mounted(job) == {"data-kafka-1": "/var/lib/kafka/data"}
    for name in ("kafka-x", "kafka-", "kafka", "kafka-1-1"):
        with pytest.raises(Problem, match="is not a pod"):
            printed_job(api, name, "--", "ls")


def test_it_is_written_for_older_versions_of_python() -> None:
    ast.parse(PLUGIN.read_text(encoding="utf-8"), feature_version=(3, 9))


def test_it_can_be_run_from_the_path() -> None:
    assert PLUGIN.stat().st_mode & 0o111 == 0o111
    done = subprocess.run([PLUGIN, "--help"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("usage: kubectl kdump [OPTION...] POD | PVC...")
