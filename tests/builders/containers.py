"""Run programs of an unpacked container image as a container runtime does, without one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from builders.empty_roots import require_namespaces

EMULATOR: Final = "qemu-aarch64-static"

_ELF: Final = rb"\x7fELF\x02\x01\x01" + rb"\x00" * 9 + rb"\x02\x00\xb7\x00"
_MASK: Final = rb"\xff" * 7 + rb"\x00" + rb"\xff" * 8 + rb"\xfe\xff\xff\xff"

_CONTAINER: Final = """
set -e
root=$1 user=$2 temporary=$3
shift 3
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
[ -z "$temporary" ] || mount -t tmpfs tmpfs "$root$temporary"
mount -o remount,bind,ro "$root"
exec unshare --user "--map-user=$user" "--map-group=$user" "--root=$root" --wd=/ "$@"
"""

_EMULATED: Final = """
set -e
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf '%s' "$1" >/proc/sys/fs/binfmt_misc/register
shift
exec "$@"
"""


def in_container(
    root: Path, user: str, temporary: str, environment: Mapping[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a program where a folder is the root, which is read-only, with ``/proc`` and ``/dev``.

    Args:
        root: the folder; it has empty folders ``proc`` and ``dev``.
        user: the number of the user.
        temporary: where to mount a tmpfs; empty for nowhere.
        environment: the variables of the image.
    """
    variables = {**environment, "PATH": f"{environment['PATH']}:/usr/sbin:/usr/bin:/sbin:/bin"}
    given = (str(root), user, temporary, *words)
    return _as_root(_CONTAINER, *given, environment=variables, own=("--pid", "--fork"))


def require_container(root: Path) -> None:
    """Skip the test where a user may not mount what a container has."""
    require_namespaces()
    script = _CONTAINER.rpartition("exec ")[0]
    given = (str(root), "0", "/tmp")
    probe = _as_root(script, *given, own=("--pid", "--fork"))
    if probe.returncode:
        pytest.skip(f"users may not mount here: {probe.stderr.strip()}")


def emulated(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program for arm64, and what that starts, by an emulator in a namespace of its own."""
    rule = rb":aarch64:M::" + _ELF + b":" + _MASK + b":" + _emulator().encode() + b":FP"
    return _as_root(_EMULATED, rule.decode(), *map(str, words))


def _as_root(
    script: str,
    *words: str,
    environment: Mapping[str, str] | None = None,
    own: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a script as root of a namespace with mounts, and what else is to be its own."""
    return subprocess.run(
        [
            *("/usr/bin/unshare", "--user", "--map-root-user", "--mount", *own),
            *("/bin/sh", "-c", script, "sh", *words),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _emulator() -> str:
    found = shutil.which(EMULATOR)
    if found is None:
        pytest.skip(f"{EMULATOR} is not on the PATH")
    return found


def require_emulator() -> None:
    """Skip the test where programs for arm64 cannot be run."""
    require_namespaces()
    probe = emulated("true")
    if probe.returncode:
        pytest.skip(f"users may not register an emulator here: {probe.stderr.strip()}")
