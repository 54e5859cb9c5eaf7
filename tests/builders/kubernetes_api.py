"""A server that answers kubectl as the API server of Kubernetes does, from objects in memory.

It has one namespace. A Job that is created is validated against the schemas of Kubernetes, and gets
a pod, which runs, or has run, as `KubernetesApi.outcome` says.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

NAMESPACE: Final = "kafka"
NEWEST: Final = kubernetes_validate.latest_version()
KINDS: Final = {
    "pods": "Pod",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "configmaps": "ConfigMap",
    "events": "Event",
    "jobs": "Job",
    "statefulsets": "StatefulSet",
    "strimzipodsets": "StrimziPodSet",
}
GROUPS: Final = {
    "jobs": "batch/v1",
    "statefulsets": "apps/v1",
    "strimzipodsets": "core.strimzi.io/v1beta2",
}
"""Groups of the kinds that are not in the first group, ``v1``."""
_PATH: Final = re.compile(
    rf"/apis?/(?P<group>[a-z0-9./]+)/namespaces/{NAMESPACE}/(?P<kind>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?P<log>/log)?"
)


class KubernetesApi:
    """The objects of the server, and how it behaves.

    Attributes:
        objects: by plural of their kind, then by name.
        forbidden: ``verb resource``, for example ``list pods``.
        warning: what it warns of in each answer.
        has_strimzi: whether it knows StrimziPodSets.
        outcome: ``state`` of the container of a Job's pod.
        why_pending: conditions of a pod that does not start; the outcome is not used then.
        has_pods: whether the pods of Jobs are created.
        log: timestamp and line.
        cuts: how many lines each of the first connections to the log gets before it breaks.
        on_create: called after a Job and its pod were created.
        is_stuck: whether deleted Jobs stay.
        asked: the rights that were needed, as in `forbidden`.
        answering: is waited for before a creation or deletion is answered.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        self.forbidden: set[str] = set()
        self.warning = ""
        self.has_strimzi = True
        self.outcome: dict[str, Any] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        self.why_pending: list[dict[str, str]] | None = None
        self.has_pods = True
        self.log: list[tuple[str, bytes]] = [("2026-11-29T05:00:00.5Z", b"kdump: valid\n")]
        self.cuts: list[int] = []
        self.on_create: Callable[[], None] = lambda: None
        self.is_stuck = False
        self.answering = threading.Event()
        self.answering.set()
        self.received = threading.Event()
        self.requests: list[str] = []
        self.asked: set[str] = set()
        self.created: list[dict[str, Any]] = []
        self.port = 0

    def add(self, *things: dict[str, Any]) -> None:
        """Add objects, which get the namespace."""
        plural_of = {kind: plural for plural, kind in KINDS.items()}
        for thing in things:
            thing["metadata"]["namespace"] = NAMESPACE
            self.objects[plural_of[thing["kind"]]][thing["metadata"]["name"]] = thing

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        """Jobs by name."""
        return self.objects["jobs"]

    def changes(self) -> list[str]:
        """Requests that change something."""
        return [each for each in self.requests if not each.startswith("GET")]

    def create_job(self, job: dict[str, Any]) -> None:
        """Create a Job and its pod.

        Raises:
            kubernetes_validate.ValidationError: Kubernetes would not accept it.
        """
        kubernetes_validate.validate(job, NEWEST, strict=True)
        self.created.append(job)
        self.add(job)
        if not self.has_pods:
            return
        template = job["spec"]["template"]
        name = job["metadata"]["name"]
        labels = {**template["metadata"]["labels"], "job-name": name}
        status: dict[str, Any] = {"phase": "Pending", "conditions": self.why_pending or []}
        if self.why_pending is None:
            ended = self.outcome.get("terminated")
            phase = "Running" if ended is None else "Failed" if ended["exitCode"] else "Succeeded"
            state = {"name": "kdump", "state": self.outcome, "restartCount": 0}
            status = {"phase": phase, "containerStatuses": [state]}
        self.add(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-x7k2p", "labels": labels},
                "spec": template["spec"],
                "status": status,
            }
        )

    def delete_job(self, name: str) -> None:
        """Delete a Job and its pods."""
        if not self.is_stuck:
            del self.jobs[name]
            pods = self.objects["pods"]
            for pod in list(pods.values()):
                if (pod["metadata"].get("labels") or {}).get("job-name") == name:
                    del pods[pod["metadata"]["name"]]


@contextmanager
def kubernetes_api() -> Iterator[KubernetesApi]:
    """Serve until the block ends."""
    api = KubernetesApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api}))
    api.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield api
    finally:
        api.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()


def write_configuration(api: KubernetesApi, folder: Path) -> dict[str, str]:
    """Write the configuration of kubectl; return the variables with which it uses it."""
    configuration = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{api.port}"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "namespace": NAMESPACE}}],
        "current-context": "test",
    }
    (folder / "config").write_text(json.dumps(configuration))
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    kept = {name: text for name, text in os.environ.items() if name.lower() not in proxies}
    return kept | {"KUBECONFIG": str(folder / "config"), "HOME": str(folder)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: KubernetesApi

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.api.warning:
            self.send_header("Warning", f'299 - "{self.api.warning}"')
        self.end_headers()
        self.wfile.write(data)

    def _fail(self, status: int, reason: str, message: str) -> None:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        self._answer(status, body | {"code": status, "reason": reason, "message": message})

    def do_GET(self) -> None:
        """Discovery, lists, objects, logs."""
        url = urlsplit(self.path)
        self.api.requests.append(f"GET {url.path}")
        discovered = self._discovery(url.path)
        if discovered is not None:
            self._answer(200, discovered)
            return
        found = _PATH.fullmatch(url.path)
        query = {name: each[0] for name, each in parse_qs(url.query).items()}
        if found is None:
            self._fail(404, "NotFound", "the server could not find the requested resource")
        elif found["log"]:
            if self._allowed("get", "pods/log"):
                self._log(query)
        elif found["name"]:
            thing = self.api.objects[found["kind"]].get(found["name"])
            if self._allowed("get", found["kind"]):
                if thing is None:
                    self._not_found(found["kind"], found["name"])
                else:
                    self._answer(200, thing)
        elif self._allowed("list", found["kind"]):
            items = list(self.api.objects[found["kind"]].values())
            for each in query.get("fieldSelector", "").split(","):
                field, _, wanted = each.partition("=")
                items = [item for item in items if not field or _field(item, field) == wanted]
            kind = f"{KINDS[found['kind']]}List"
            self._answer(200, {"apiVersion": found["group"], "kind": kind, "items": items})

    def do_POST(self) -> None:
        """Create a Job."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._change("create", body)
        if self._allowed("create", "jobs"):
            try:
                self.api.create_job(body)
            except kubernetes_validate.ValidationError as failure:
                self._fail(422, "Invalid", str(failure))
                return
            self.api.on_create()
            self._answer(201, body)

    def do_DELETE(self) -> None:
        """Delete a Job."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        self._change("delete", body)
        name = urlsplit(self.path).path.rpartition("/")[2]
        if self._allowed("delete", "jobs"):
            if name not in self.api.jobs:
                self._not_found("jobs", name)
                return
            self.api.delete_job(name)
            self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _change(self, verb: str, body: dict[str, Any]) -> None:
        how = body.get("propagationPolicy", "")
        self.api.requests.append(f"{verb} {urlsplit(self.path).path} {how}".rstrip())
        self.api.received.set()
        self.api.answering.wait(60)

    def _allowed(self, verb: str, resource: str) -> bool:
        self.api.asked.add(f"{verb} {resource}")
        if f"{verb} {resource}" not in self.api.forbidden:
            return True
        message = f'{resource} is forbidden: User "eve" cannot {verb} resource "{resource}"'
        self._fail(403, "Forbidden", message)
        return False

    def _not_found(self, resource: str, name: str) -> None:
        self._fail(404, "NotFound", f'{resource} "{name}" not found')

    def _log(self, query: dict[str, str]) -> None:
        since = query.get("sinceTime", "")[:19]
        lines = [each for each in self.api.log if each[0][:19] >= since]
        cut = self.api.cuts.pop(0) if self.api.cuts else None
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for stamp, text in lines[:cut]:
            line = stamp.encode() + b" " + text
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        if cut is None:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _discovery(self, path: str) -> object | None:
        groups = {
            group: [each for each in KINDS.items() if GROUPS.get(each[0], "v1") == group]
            for group in ("v1", *GROUPS.values())
            if self.api.has_strimzi or "strimzi" not in group
        }
        if path == "/version":
            return {"major": "1", "minor": "32", "gitVersion": "v1.32.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            named = [
                (each, {"groupVersion": each, "version": each.partition("/")[2]}) for each in groups
            ]
            listed = [
                {"name": each.partition("/")[0], "versions": [version], "preferredVersion": version}
                for each, version in named
                if "/" in each
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        if path == "/openapi/v3":
            return {"paths": {"apis/batch/v1": {"serverRelativeURL": "/openapi/v3/apis/batch/v1"}}}
        if path == "/openapi/v3/apis/batch/v1":
            return _VALIDATES
        group = path.removeprefix("/apis/").removeprefix("/api/")
        if group not in groups:
            return None
        resources = [
            {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind}
            | {"verbs": ["create", "delete", "get", "list"]}
            for plural, kind in groups[group]
        ]
        return {"kind": "APIResourceList", "groupVersion": group, "resources": resources}


_VALIDATES: Final = {
    "openapi": "3.0.0",
    "info": {"title": "Kubernetes", "version": "v1.32.0"},
    "paths": {
        "/apis/batch/v1/namespaces/{namespace}/jobs/{name}": {
            "patch": {
                "parameters": [
                    {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
                ],
                "responses": {},
                "x-kubernetes-group-version-kind": {
                    "group": "batch",
                    "version": "v1",
                    "kind": "Job",
                },
            }
        }
    },
}
"""That the server validates what kubectl sends, so that kubectl does not."""


def _field(thing: dict[str, Any], path: str) -> object:
    value: Any = thing
    for each in path.split("."):
        value = value.get(each, {})
    return value
