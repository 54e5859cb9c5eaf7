"""Make a container image of bundles: an archive in the layout of the OCI, without a daemon.

An image is for several architectures; a container runtime takes its own. It has the bundle
in ``/opt/kdump``, an empty ``/data`` and ``/tmp``, and nothing else; it runs ``kdump`` as a user
without rights. Layers that images share have the same bytes, so that a registry keeps them once.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from archive import LEVEL, CompressedFiles, PackedTar, add_folder, write_tar

OWNER: Final = 65532
"""Nobody's: the owner of the log directory is given when the container is run."""
HOME: Final = "/opt/kdump"
"""Where the bundle is in an image."""

_TYPE: Final = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of the file system of an image.

    Attributes:
        blob: the compressed archive.
        digest: the SHA-256 of that.
        content_digest: the SHA-256 of the archive before it was compressed.
    """

    blob: Path
    digest: str
    content_digest: str


@dataclass(frozen=True, slots=True)
class ArchitectureImage:
    """An image for one architecture.

    Attributes:
        architecture: as Go names it, such as ``arm64``.
        layers: from the lowest to the highest.
        environment: variables.
    """

    architecture: str
    layers: tuple[Layer, ...]
    environment: Mapping[str, str]


def write_layer(
    folder: Path, add: Callable[[tarfile.TarFile, PackedTar], None], level: int = LEVEL
) -> Layer:
    """Write a layer into a folder.

    Args:
        add: adds the members.
        level: how much to compress; 1 for what is compressed already.
    """
    unfinished = folder / "unfinished"
    folder.mkdir(parents=True, exist_ok=True)
    content_digest = write_tar(unfinished, add, level)
    with unfinished.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    blob = unfinished.replace(folder / digest)
    return Layer(blob, digest, content_digest)


def add_bundle(
    archive: tarfile.TarFile, packed: PackedTar, bundle: Path, time_s: int, files: CompressedFiles
) -> None:
    """Add a bundle, and the empty folders of the image.

    Args:
        archive: the layer, open for writing.
        packed: what it writes to.
        bundle: the folder of the bundle.
        time_s: the time of all files.
        files: what the archive of the bundle has compressed.
    """
    for name, mode in (("data", 0o755), ("opt", 0o755), ("tmp", 0o1777)):
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.mtime = tarfile.DIRTYPE, mode, time_s
        archive.addfile(member)
    add_folder(archive, packed, bundle, f"{HOME.lstrip('/')}/", time_s, files)


def add_root(archive: tarfile.TarFile, packed: PackedTar, folder: Path, time_s: int) -> None:
    """Add what is in a folder, which is the root of the layer."""
    add_folder(archive, packed, folder, "", time_s, CompressedFiles())


def write_image(
    images: Iterable[ArchitectureImage], target: Path, *, tag: str, version: str, time_s: int
) -> None:
    """Write an image for several architectures.

    Args:
        target: the file to write, which ``podman load`` and ``skopeo copy oci-archive:`` read.
        tag: of the image.
        version: of kdump.
        time_s: the time of all files and of the image.
    """
    unfinished = target.with_name(f"{target.name}.unfinished")
    with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as archive:
        layout = _Layout(archive, time_s)
        labels = {
            "org.opencontainers.image.title": "kdump",
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": "Apache-2.0",
        }
        manifests = [
            layout.add_image(each, labels)
            | {"platform": {"architecture": each.architecture, "os": "linux"}}
            for each in images
        ]
        index = layout.add_json(f"{_TYPE}.index.v1+json", _index(manifests))
        index["annotations"] = {"org.opencontainers.image.ref.name": tag}
        layout.add_file("index.json", _encoded(_index([index])))
        layout.add_file("oci-layout", _encoded({"imageLayoutVersion": "1.0.0"}))
    unfinished.replace(target)


class _Layout:
    """The files of an image; each is written once."""

    def __init__(self, archive: tarfile.TarFile, time_s: int) -> None:
        self._archive = archive
        self._time_s = time_s
        self._written = set[str]()

    def add_file(self, name: str, content: bytes) -> None:
        self._archive.addfile(self._member(name, len(content)), io.BytesIO(content))

    def add_json(self, media_type: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Add a document; return its descriptor."""
        content = _encoded(value)
        digest = hashlib.sha256(content).hexdigest()
        self.add_file(f"blobs/sha256/{digest}", content)
        return _descriptor(media_type, digest, len(content))

    def add_image(self, image: ArchitectureImage, labels: Mapping[str, str]) -> dict[str, Any]:
        """Add an image for one architecture; return its descriptor."""
        created = dt.datetime.fromtimestamp(self._time_s, dt.UTC).isoformat()
        created = created.replace("+00:00", "Z")
        config = {
            "created": created,
            "architecture": image.architecture,
            "os": "linux",
            "config": {
                "User": f"{OWNER}:{OWNER}",
                "Env": [f"{name}={value}" for name, value in image.environment.items()],
                "Entrypoint": [f"{HOME}/bin/kdump"],
                # Without any other place, temporary files go to the current directory.
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{each.content_digest}" for each in image.layers],
            },
            "history": [{"created": created, "created_by": "kdump"} for _ in image.layers],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": self.add_json(f"{_TYPE}.config.v1+json", config),
            "layers": [self._add_layer(each) for each in image.layers],
        }
        return self.add_json(f"{_TYPE}.manifest.v1+json", manifest)

    def _add_layer(self, layer: Layer) -> dict[str, Any]:
        size = layer.blob.stat().st_size
        if layer.digest not in self._written:
            self._written.add(layer.digest)
            with layer.blob.open("rb") as content:
                name = f"blobs/sha256/{layer.digest}"
                self._archive.addfile(self._member(name, size), content)
        return _descriptor(f"{_TYPE}.layer.v1.tar+gzip", layer.digest, size)

    def _member(self, name: str, size: int) -> tarfile.TarInfo:
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = size, 0o644, self._time_s
        return member


def _index(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.index.v1+json",
        "manifests": manifests,
    }


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
