"""Pods, StatefulSets, pod sets and claims of brokers, as operators and charts create them."""

from __future__ import annotations

from typing import Any, Final

Thing = dict[str, Any]
CRASH_LOOPS: Final = {
    "waiting": {
        "reason": "CrashLoopBackOff",
        "message": "back-off 5m0s restarting failed container",
    }
}
RUNS: Final = {"running": {"startedAt": "2026-11-29T05:00:00Z"}}


def claim(name: str, *modes: str) -> Thing:
    """A bound volume claim."""
    spec = {"accessModes": list(modes or ("ReadWriteOnce",)), "volumeName": f"pv-{name}"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"phase": "Bound"},
    }


def config_map(name: str, **data: str) -> Thing:
    """A ConfigMap; ``__`` in the name of a text stands for a dot."""
    texts = {key.replace("__", "."): text for key, text in data.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": texts}


def pod(
    name: str,
    mounts: dict[str, str],
    state: Thing | None = None,
    *,
    labels: dict[str, str] | None = None,
    context: Thing | None = None,
    env: dict[str, str] | None = None,
    volumes: tuple[Thing, ...] = (),
    restarts: int = 7,
) -> Thing:
    """A pod with one container, ``kafka``.

    Args:
        mounts: mount path by claim.
        state: of its container; without one the pod has no status, as in a template.
        volumes: others that it has.
    """
    container: Thing = {"name": "kafka", "image": "kafka", "volumeMounts": []}
    if env:
        container["env"] = [{"name": key, "value": text} for key, text in env.items()]
    spec: Thing = {"containers": [container], "volumes": list(volumes)}
    if context is not None:
        spec["securityContext"] = context
    for number, (each, path) in enumerate(mounts.items()):
        source = {"persistentVolumeClaim": {"claimName": each}}
        spec["volumes"].append({"name": f"v{number}", **source})
        container["volumeMounts"].append({"name": f"v{number}", "mountPath": path})
    made: Thing = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    made["metadata"]["labels"] = labels or {}
    if state is not None:
        spec["nodeName"] = "node-b"
        status = {"name": "kafka", "state": state, "restartCount": restarts}
        made["status"] = {"phase": "Running", "containerStatuses": [status]}
    return made


def strimzi_pod(node: int, state: Thing | None = CRASH_LOOPS) -> Thing:
    """A broker of Strimzi with two disks; its user is that of the image."""
    name = f"my-cluster-broker-{node}"
    mounts = {f"data-{disk}-{name}": f"/var/lib/kafka/data-{disk}" for disk in (0, 1)}
    labels = {"strimzi.io/cluster": "my-cluster", "strimzi.io/kind": "Kafka"}
    made = pod(name, mounts, state, labels=labels, context={"fsGroup": 0})
    made["spec"]["tolerations"] = [{"key": "kafka", "operator": "Exists"}]
    return made


def strimzi_cluster(*states: Thing | None) -> list[Thing]:
    """Three brokers with two disks each, in a pod set; pods without a state do not exist."""
    pods = [strimzi_pod(node, state) for node, state in enumerate(states)]
    spec = {"pods": [strimzi_pod(node, None) for node in range(3)]}
    pod_set = {
        "apiVersion": "core.strimzi.io/v1beta2",
        "kind": "StrimziPodSet",
        "metadata": {"name": "my-cluster-broker"},
        "spec": spec,
    }
    claims = [
        claim(f"data-{disk}-my-cluster-broker-{node}") for node in range(3) for disk in range(2)
    ]
    for each in claims:
        each["metadata"]["labels"] = {"strimzi.io/cluster": "my-cluster"}
    return [*(each for each in pods if "status" in each), pod_set, *claims]


def stateful_set(
    name: str, template: Thing, mounts: dict[str, str], replicas: int = 3
) -> list[Thing]:
    """A StatefulSet, and the claims of its pods.

    Args:
        template: a pod without claims.
        mounts: mount path by claim template.
    """
    spec = dict(template["spec"])
    (container,) = spec["containers"]
    volume_mounts = [{"name": key, "mountPath": path} for key, path in mounts.items()]
    spec["containers"] = [{**container, "volumeMounts": volume_mounts}]
    metadata = {"labels": template["metadata"]["labels"]}
    templates = [{"metadata": {"name": each}, "spec": {}} for each in mounts]
    made = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "template": {"metadata": metadata, "spec": spec},
            "volumeClaimTemplates": templates,
        },
    }
    return [made, *(claim(f"{each}-{name}-{n}") for n in range(replicas) for each in mounts)]


def confluent() -> list[Thing]:
    """A stopped StatefulSet of Confluent for Kubernetes."""
    context = {"runAsUser": 1001, "fsGroup": 1001, "runAsNonRoot": True}
    return stateful_set("kafka", pod("t", {}, context=context), {"data0": "/mnt/data/data0"})


def bitnami() -> list[Thing]:
    """A stopped StatefulSet of Bitnami's chart: the configuration is in a ConfigMap."""
    configuration = {"name": "kafka-configmaps", "configMap": {"name": "r-kafka-configuration"}}
    template = pod("t", {}, context={"fsGroup": 1001}, volumes=(configuration,))
    template["spec"]["containers"][0]["securityContext"] = {"runAsUser": 1001, "runAsGroup": 1001}
    text = "process.roles=controller,broker\nlog.dir=/bitnami/kafka/data\nlogs.dir=/opt/logs\n"
    sets = stateful_set("r-kafka-controller", template, {"data": "/bitnami/kafka"})
    return [*sets, config_map("r-kafka-configuration", server__properties=text)]
