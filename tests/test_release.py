"""The files of a release: what is in them, and that each of them installs and runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

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


def elf_files(artefact: Path) -> dict[str, str]:
    """The programs and shared libraries of an artefact, with their SHA-256."""
    found = {}
    if artefact.suffix == ".whl":
        with zipfile.ZipFile(artefact) as opened:
            files = {name: opened.read(name) for name in opened.namelist()}
    else:
        with tarfile.open(artefact) as archive:
            files = {}
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    files[member.name.partition("/")[2]] = content.read()
    for name, data in files.items():
        if data.startswith(b"\x7fELF"):
            found[name] = hashlib.sha256(data).hexdigest()
    return found


def listed_files(component: dict[str, Any]) -> dict[str, str]:
    return {
        each["name"]: each["hashes"][0]["content"]
        for each in component.get("components", ())
        if each["type"] == "file"
    }


class TestParts:
    """The list of parts of each artefact."""

    ARTEFACTS: Final = ("kdump-*.tar.gz", "*-none-any.whl", "*manylinux*.whl")

    def of(self, artefact: Path) -> str:
        name = artefact.name.removesuffix(".whl").removesuffix(".tar.gz")
        return (artefact.parent / f"{name}.cdx.json").read_text()

    @pytest.mark.parametrize("pattern", ARTEFACTS)
    def test_it_is_valid(self, pattern: str, release: Path) -> None:
        text = self.of(only(release, pattern))
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None

    @pytest.mark.parametrize("pattern", ARTEFACTS)
    def test_it_has_each_program_and_library_once(self, pattern: str, release: Path) -> None:
        artefact = only(release, pattern)
        listed = json.loads(self.of(artefact))
        own = listed["metadata"]["component"]
        assert own["hashes"][0]["content"] == hashlib.sha256(artefact.read_bytes()).hexdigest()
        owners = [own, *listed.get("components", ())]
        found = [pair for each in owners for pair in listed_files(each).items()]
        assert sorted(found) == sorted(elf_files(artefact).items())

    def test_a_file_is_of_the_package_that_has_it(self, release: Path) -> None:
        listed = json.loads(self.of(only(release, "kdump-*.tar.gz")))
        parts = {each["name"]: each for each in listed["components"]}
        assert {"python", "click", "numpy", "pyarrow", "zstandard"} < parts.keys()
        assert "cyclonedx-python-lib" not in parts
        assert "lib/kdump/python.bin" in listed_files(parts["python"])
        assert all("/pyarrow/" in name for name in listed_files(parts["pyarrow"]))
        (c_library,) = (
            each for each in parts.values() if "lib/kdump/libc.so.6" in listed_files(each)
        )
        assert c_library["purl"].startswith(("pkg:deb/", "pkg:rpm/"))


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
