"""Make a container image of the bundle: an archive in the layout of the OCI, without a daemon.

umoci writes it. The image has the bundle in ``/opt/kdump``, an empty ``/data`` and ``/tmp``, and
nothing else; it runs ``kdump`` as a user without rights.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import shutil
import tarfile
from pathlib import Path
from typing import Final

from archive import add_folder
from shared_libraries import BundleError, output_of

_USER: Final = "65532:65532"
"""Nobody's: the owner of the log directory is given when the container is run."""
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(bundle: Path, target: Path, version: str, time_s: int) -> None:
    """Write the image of a bundle.

    Args:
        bundle: the archive of the bundle.
        target: the file to write, which ``podman load`` and ``skopeo copy oci-archive:`` read.
        version: of kdump, which is the tag of the image.
        time_s: the time of all files and of the image.

    Raises:
        BundleError: umoci is not installed, or fails.
    """
    if shutil.which("umoci") is None:
        raise BundleError("umoci is not on the PATH: install the package of the distribution")
    work = target.parent / f"{target.name}.unfinished"
    shutil.rmtree(work, ignore_errors=True)
    root = work / "root"
    _unpack(bundle, root / "opt" / "kdump")
    for name, mode in (("data", 0o755), ("tmp", 0o1777)):
        (root / name).mkdir()
        (root / name).chmod(mode)
    for path in [root, *root.rglob("*")]:
        os.utime(path, (time_s, time_s))
    layout = work / "layout"
    _write_layout(root, layout, version, time_s)
    unfinished = work / target.name
    with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as archive:
        add_folder(archive, layout, "", time_s)
    unfinished.replace(target)
    shutil.rmtree(work)


def _unpack(bundle: Path, folder: Path) -> None:
    """Unpack the archive, without its first folder."""
    unpacked = folder.with_name("unpacked")
    with tarfile.open(bundle) as archive:
        archive.extractall(unpacked, filter="data")
    (first,) = unpacked.iterdir()
    first.rename(folder)
    unpacked.rmdir()


def _write_layout(root: Path, layout: Path, version: str, time_s: int) -> None:
    image = f"{layout}:{version}"
    created = dt.datetime.fromtimestamp(time_s, dt.UTC).isoformat().replace("+00:00", "Z")
    output_of("umoci", "init", "--layout", layout)
    output_of("umoci", "new", "--image", image)
    output_of(
        *("umoci", "insert", "--rootless", "--image", image),
        *("--history.created", created, "--history.created_by", "kdump", root, "/"),
    )
    output_of(
        *("umoci", "config", "--image", image, "--no-history", "--created", created),
        *("--os", "linux", "--architecture", _ARCHITECTURES[platform.machine()]),
        *("--config.entrypoint", "/opt/kdump/bin/kdump", "--config.user", _USER),
        *("--config.env", "PATH=/opt/kdump/bin", "--config.workingdir", "/data"),
        *("--config.label", "org.opencontainers.image.title=kdump"),
        *("--config.label", f"org.opencontainers.image.version={version}"),
        *("--config.label", "org.opencontainers.image.licenses=Apache-2.0"),
    )
    output_of("umoci", "gc", "--layout", layout)
