"""The files of a release: what is in them, and that each of them installs and runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import batches
from builders.empty_roots import in_empty_root, require_namespaces
from builders.log_directories import write_log_directory, write_partition

pytestmark = pytest.mark.soak

TOOLS: Final = ("cc", "ldd", "readelf", "strip", "umoci")
MOST_BYTES_OF_IMAGE: Final = 100_000_000


def make(repository_root: Path, target: Path) -> Path:
    """Make the release; return its folder."""
    missing = [each for each in TOOLS if shutil.which(each) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not on the PATH")
    done = subprocess.run(
        [sys.executable, repository_root / "bundle" / "release.py", target],
        capture_output=True,
        text=True,
        check=False,
    )
    if "make the bundle on a machine with glibc" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return target


@pytest.fixture(scope="module")
def release(repository_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(repository_root, tmp_path_factory.mktemp("release") / "made")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    root = write_log_directory(tmp_path / "logs")
    write_partition(root / "orders-0", {0: b"".join(batches(2))})
    return root


def only(release: Path, pattern: str) -> Path:
    (found,) = release.glob(pattern)
    return found


def test_the_checksums_are_those_of_all_files(release: Path) -> None:
    listed = (release / "SHA256SUMS").read_text()
    files = sorted(path for path in release.iterdir() if path.name != "SHA256SUMS")
    assert len(files) >= 5
    assert listed == "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files
    )


def test_the_same_commit_makes_the_same_bytes(
    release: Path, repository_root: Path, tmp_path: Path
) -> None:
    again = make(repository_root, tmp_path / "elsewhere")
    assert (again / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()


@pytest.mark.parametrize("pattern", ["*-none-any.whl", "*manylinux*.whl", "kafka_kdump-*.tar.gz"])
def test_each_package_installs_and_verifies(pattern: str, release: Path, log_dir: Path) -> None:
    package = only(release, pattern)
    target = release.with_name(f"installed {package.name}")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*install, *options, package], check=True)
    environment = os.environ | {"PYTHONPATH": str(target)}
    where = [sys.executable, "-c", "import kdump; print(kdump.__file__)"]
    found = subprocess.run(
        where, cwd=log_dir, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).is_relative_to(target)
    has_loops = (target / "kdump" / "compiled" / "libsegments.so.1").exists()
    assert has_loops == (pattern != "*-none-any.whl")
    done = subprocess.run(
        [sys.executable, "-m", "kdump", "verify", "."],
        cwd=log_dir,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_plugin_of_kubectl_can_be_run(release: Path) -> None:
    done = subprocess.run([only(release, "kubectl-kdump"), "--help"], check=False)
    assert done.returncode == 0


def test_the_parts_have_all_packages_of_the_bundle(release: Path) -> None:
    listed: dict[str, Any] = json.loads(only(release, "*.cdx.json").read_text())
    names = {each["name"] for each in listed["components"]}
    assert {"python", "click", "numpy", "pyarrow", "zstandard"} < names
    assert listed["metadata"]["component"]["name"] == "kafka-kdump"


@pytest.fixture(scope="module")
def root(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of the image."""
    layout = tmp_path_factory.mktemp("layout")
    with tarfile.open(only(release, "*-image.tar")) as archive:
        archive.extractall(layout, filter="data")
    (named,) = json.loads((layout / "index.json").read_text())["manifests"]
    tag = named["annotations"]["org.opencontainers.image.ref.name"]
    target = tmp_path_factory.mktemp("image") / "unpacked"
    unpack = ["umoci", "unpack", "--rootless", "--image", f"{layout}:{tag}", str(target)]
    subprocess.run(unpack, check=True, capture_output=True)
    return target / "rootfs"


class TestImage:
    def test_it_is_small_and_of_one_user_without_rights(self, release: Path) -> None:
        image = only(release, "*-image.tar")
        assert image.stat().st_size < MOST_BYTES_OF_IMAGE
        if shutil.which("skopeo") is None:
            pytest.skip("skopeo is not on the PATH")
        asked = ["skopeo", "inspect", "--config", f"oci-archive:{image}"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        config = json.loads(done.stdout)["config"]
        assert config["User"] == "65532:65532"
        assert config["Entrypoint"] == ["/opt/kdump/bin/kdump"]

    def test_it_has_nothing_but_the_bundle(self, root: Path) -> None:
        assert {path.name for path in root.iterdir()} == {"data", "opt", "tmp"}

    def test_it_runs_as_another_user(self, root: Path, log_dir: Path) -> None:
        require_namespaces()
        shutil.copytree(log_dir, root / "data" / "logs")
        done = in_empty_root("65532", root, "/opt/kdump/bin/kdump", "verify", "/data/logs")
        assert (done.returncode, done.stderr) == (0, "")
