"""The kubectl plugin, as a process and as a module."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import kubernetes_validate
import pytest
from msgspec import yaml

from builders.kubernetes_api import NEWEST, KubernetesApi, write_configuration

PLUGIN: Final = Path(__file__).resolve().parents[2] / "bundle" / "kubectl-kdump"
IMAGE: Final = "registry.example.com/kdump:latest"


def plugin() -> ModuleType:
    """The plugin as a module."""
    loader = importlib.machinery.SourceFileLoader("kubectl_kdump", str(PLUGIN))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # its dataclasses look there
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


PLUGIN_MODULE: Final[Any] = plugin()


class RecordedKubectl(PLUGIN_MODULE.Kubectl):  # type: ignore[misc]
    """kubectl for a plugin in this process: it answers ``get`` from the objects of a server."""

    def __init__(self, api: KubernetesApi) -> None:
        super().__init__([])
        self._api = api

    def run(self, *words: str, given: str | None = None) -> str:
        """Answer a command.

        Raises:
            Problem: it is forbidden.
        """
        assert (words[0], given) == ("get", None)
        kind = words[1].partition(".")[0]
        if kind == "configmap":
            found = self._api.objects["configmaps"].get(words[-1])
            return "" if found is None else json.dumps(found)
        if f"list {kind}" in self._api.forbidden:
            raise PLUGIN_MODULE.Problem(f"Error from server (Forbidden): {kind} is forbidden")
        return json.dumps({"items": list(self._api.objects[kind].values())})


def printed_job(api: KubernetesApi, *words: str) -> dict[str, Any]:
    """Return the Job that the plugin would create, as YAML that was read again.

    Raises:
        Problem: the plugin refuses.
    """
    options = PLUGIN_MODULE.parse([f"--image={IMAGE}", *words])
    kubectl = RecordedKubectl(api)
    pods = kubectl.objects("pods")
    broker = PLUGIN_MODULE.find_broker(kubectl, options, pods)
    job = PLUGIN_MODULE.planned_job(broker, options, pods)
    read: dict[str, Any] = yaml.decode("\n".join(PLUGIN_MODULE.yaml_lines(job)))
    kubernetes_validate.validate(read, NEWEST, strict=True)
    return read


def plugin_runner(
    api: KubernetesApi, folder: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what runs the plugin to its end, by kubectl's configuration of a server."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        with start_plugin(api, folder, *words) as process:
            printed, said = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, printed, said)

    return run


def start_plugin(api: KubernetesApi, folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start the plugin."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    return subprocess.Popen(
        [sys.executable, "-W", "error", PLUGIN, f"--image={IMAGE}", *words],
        env=write_configuration(api, folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # ^C of a terminal reaches kubectl, too
        preexec_fn=_hear_signals,
    )


def _hear_signals() -> None:
    """Ignore no signal: tests that run in the background do, and so would their processes."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
