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
from builders.containers import (
    emulated,
    in_container,
    require_container,
    require_emulator,
)
from builders.empty_roots import in_empty_root, require_namespaces
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.releases import THIS, make_release, only
from kdump.compiled.library import FILE_NAME

pytestmark = pytest.mark.soak

MOST_BYTES_OF_IMAGE: Final = 100_000_000
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@pytest.fixture(scope="module")
def release(repository_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = repository_root / "kdump" / "compiled" / FILE_NAME
    before = library.read_bytes() if library.exists() else None
    target = tmp_path_factory.mktemp("release") / "made"
    made = make_release(repository_root, target, "--without-spark")
    # kdump runs with it here.
    assert (library.read_bytes() if library.exists() else None) == before
    return made


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    root = write_log_directory(tmp_path / "logs")
    write_partition(root / "orders-0", {0: b"".join(batches(2))})
    return root


def test_the_checksums_are_those_of_all_files(release: Path) -> None:
    listed = (release / "SHA256SUMS").read_text()
    files = sorted(path for path in release.iterdir() if path.name != "SHA256SUMS")
    assert len(files) >= 5
    assert listed == "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files
    )


def test_the_same_commit_makes_the_same_bytes(release: Path, machine_release: Path) -> None:
    made = {line for line in checksums(machine_release) if "-image" not in line}
    assert len(made) >= 5
    assert made < set(checksums(release))


def checksums(release: Path) -> list[str]:
    return (release / "SHA256SUMS").read_text().splitlines()


@pytest.mark.parametrize(
    "pattern", ["*-none-any.whl", f"*manylinux*{THIS}.whl", "kafka_kdump-*.tar.gz"]
)
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


@pytest.mark.parametrize("answer", ["", "openjdk-17-jre-headless | 17.0.1-1 | somewhere"])
def test_another_machine_needs_java_only_where_the_distribution_has_it(
    answer: str, repository_root: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    scripts = {
        "apt-cache": f"echo '{answer}'",
        "apt-get": f"""case "$*" in
*indextargets*) printf 'http://a/debian %s main\\n' bookworm bookworm-security;;
*install*) echo "$@" >{tmp_path}/asked;;
esac""",
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    program = """
import downloads, pathlib, platform, sys
platform.freedesktop_os_release = lambda: {"ID": "debian", "VERSION_CODENAME": "bookworm"}
downloads._get("aarch64", ["coreutils", downloads.JAVA], pathlib.Path(sys.argv[1]))
"""
    subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env=os.environ
        | {"PATH": f"{programs}:{os.environ['PATH']}"}
        | {"PYTHONPATH": f"{repository_root / 'bundle'}:{repository_root}"},
        check=True,
    )
    asked = (tmp_path / "asked").read_text().split()
    assert asked[asked.index("install") + 1 :] == [
        "coreutils",
        *(["openjdk-17-jre-headless"] if answer else []),
    ]


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

    ARTEFACTS: Final = (
        *(f"kdump-*-{machine}.tar.gz" for machine in ARCHITECTURES),
        *(f"*manylinux*_{machine}.whl" for machine in ARCHITECTURES),
        "*-none-any.whl",
    )

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
        listed = json.loads(self.of(only(release, f"kdump-*-{THIS}.tar.gz")))
        parts = {each["name"]: each for each in listed["components"]}
        assert {"python", "click", "numpy", "pyarrow", "zstandard"} < parts.keys()
        assert "cyclonedx-python-lib" not in parts
        assert "lib/kdump/python.bin" in listed_files(parts["python"])
        assert all("/pyarrow/" in name for name in listed_files(parts["pyarrow"]))
        (c_library,) = (
            each for each in parts.values() if "lib/kdump/libc.so.6" in listed_files(each)
        )
        assert c_library["purl"].startswith(("pkg:deb/", "pkg:rpm/"))

    def test_python_of_the_distribution_is_its_package(self, release: Path) -> None:
        listed = json.loads(self.of(only(release, "kdump-*-aarch64.tar.gz")))
        parts = {each["name"]: each for each in listed["components"]}
        assert "lib/kdump/python.bin" in listed_files(parts["python3.11"])
        assert parts["python3.11"]["purl"].startswith("pkg:deb/debian/python3.11@3.11.")

    def test_the_image_with_spark_has_one(self, machine_release: Path) -> None:
        architecture = ARCHITECTURES[THIS]
        text = only(machine_release, f"kdump-*-spark-image-{architecture}.cdx.json").read_text()
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
        parts = {each["name"]: each for each in json.loads(text)["components"]}
        assert {"pyspark", "py4j", "numpy", "jackson-databind"} < parts.keys()
        java = f"usr/lib/jvm/java-17-openjdk-{architecture}/lib/server/libjvm.so"
        assert java in listed_files(parts["openjdk-17"])


def unpack(image: Path, architecture: str, target: Path) -> Path:
    """Unpack an image for one architecture; return its file system."""
    layout = target / "layout"
    with tarfile.open(image) as archive:
        archive.extractall(layout, filter="data")
    (tagged,) = json.loads((layout / "index.json").read_text())["manifests"]
    digest = tagged["digest"].removeprefix("sha256:")
    listed = json.loads((layout / "blobs" / "sha256" / digest).read_text())["manifests"]
    (manifest,) = (each for each in listed if each["platform"]["architecture"] == architecture)
    # umoci takes an image for one architecture.
    manifest["annotations"] = {"org.opencontainers.image.ref.name": "one"}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    command = ["umoci", "unpack", "--rootless", "--image", f"{layout}:one"]
    subprocess.run([*command, target / "bundle"], check=True, capture_output=True)
    shutil.rmtree(layout)
    return target / "bundle" / "rootfs"


def config_of(image: Path, architecture: str) -> dict[str, Any]:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not on the PATH")
    asked = ["skopeo", "--override-arch", architecture, "inspect", "--config"]
    done = subprocess.run(
        [*asked, f"oci-archive:{image}"], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["architecture"] == architecture
    return found["config"]  # type: ignore[no-any-return]


def require_umoci() -> None:
    if shutil.which("umoci") is None:
        pytest.skip("umoci is not on the PATH")


@pytest.fixture(scope="module")
def root(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of the image for this machine."""
    require_umoci()
    image = only(release, "kdump-*[0-9]-image.tar")
    return unpack(image, ARCHITECTURES[THIS], tmp_path_factory.mktemp("image"))


class TestImage:
    @pytest.mark.parametrize("architecture", ARCHITECTURES.values())
    def test_it_is_small_and_of_one_user_without_rights(
        self, architecture: str, release: Path
    ) -> None:
        only(release, "kdump-*-aarch64.tar.gz")
        image = only(release, "kdump-*[0-9]-image.tar")
        config = config_of(image, architecture)
        assert config["User"] == "65532:65532"
        assert config["Entrypoint"] == ["/opt/kdump/bin/kdump"]
        assert image.stat().st_size < MOST_BYTES_OF_IMAGE * len(ARCHITECTURES)

    def test_it_has_nothing_but_the_bundle(self, root: Path, release: Path) -> None:
        assert {path.name for path in root.iterdir()} == {"data", "opt", "tmp"}
        with tarfile.open(only(release, f"kdump-*-{THIS}.tar.gz")) as archive:
            listed = {member.name.partition("/")[2] for member in archive}
        kdump = root / "opt" / "kdump"
        assert {str(path.relative_to(kdump)) for path in kdump.rglob("*")} == listed - {"", "."}

    def test_it_runs_as_another_user(self, root: Path, log_dir: Path) -> None:
        require_namespaces()
        shutil.copytree(log_dir, root / "data" / "logs")
        done = in_empty_root("65532", root, "/opt/kdump/bin/kdump", "verify", "/data/logs")
        assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def arm64_kdump(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = only(release, "kdump-*-aarch64.tar.gz")
    require_emulator()
    target = tmp_path_factory.mktemp("arm64")
    with tarfile.open(archive) as opened:
        opened.extractall(target, filter="data")
    (folder,) = target.iterdir()
    return folder / "bin" / "kdump"


class TestBundleOfAnotherMachine:
    """The bundle for arm64, by an emulator."""

    @pytest.mark.parametrize(
        "words",
        [
            ("--version",),
            ("verify", "--output", "jsonl", "{}"),
            ("dump-segment", "--print-data-log", "{}/crash-txn-0/00000000000000000000.log"),
            (
                *("compact", "--dry-run", "--topic", "crash-compact"),
                *("--config", "cleanup.policy=compact", "--now", "2026-11-22T00:00:00Z", "{}"),
            ),
        ],
        ids=lambda words: words[0],
    )
    def test_it_says_what_that_of_this_machine_says(
        self, words: tuple[str, ...], arm64_kdump: Path, fixtures: Path, tmp_path: Path
    ) -> None:
        logs = shutil.copytree(fixtures / "out" / "crashed" / "d1", tmp_path / "d1", symlinks=True)
        given = [word.format(logs) for word in words]
        installed = run_kdump(given, tmp_path)
        done = emulated(arm64_kdump, *given)
        assert (done.returncode, done.stderr) == (
            installed.exit_status,
            installed.stderr.decode(),
        )
        assert without_time(done.stdout) == without_time(installed.stdout.decode())
        assert done.stdout

    def test_it_decodes_with_compiled_loops(self, arm64_kdump: Path) -> None:
        program = "import kdump.compiled as c; import pathlib, ctypes;"
        program += "print(ctypes.CDLL(str(pathlib.Path(c.__path__[0], 'libsegments.so.1')))._name)"
        done = emulated(arm64_kdump.parents[1] / "lib" / "kdump" / "python", "-c", program)
        assert done.stdout.endswith("libsegments.so.1\n"), done.stderr


def without_time(text: str) -> list[str]:
    """The lines that do not say how long it took."""
    return [line for line in text.splitlines() if "seconds" not in line and " s, " not in line]


@pytest.fixture(scope="module")
def spark_root(
    machine_release: Path, fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The file system of the image for this machine, with a log directory."""
    require_umoci()
    image = only(machine_release, "kdump-*-spark-image.tar")
    root = unpack(image, ARCHITECTURES[THIS], tmp_path_factory.mktemp("spark"))
    for name in ("proc", "dev"):
        (root / name).mkdir()
    logs = fixtures / "out" / "crashed" / "d1"
    shutil.copytree(logs, root / "data" / "logs", symlinks=True)
    require_container(root)
    return root


@pytest.fixture(scope="module")
def environment(machine_release: Path) -> dict[str, str]:
    image = only(machine_release, "kdump-*-spark-image.tar")
    config = config_of(image, ARCHITECTURES[THIS])
    return dict(each.split("=", 1) for each in config["Env"])


class TestImageWithSpark:
    def test_it_knows_where_java_is(self, environment: dict[str, str]) -> None:
        where = f"/usr/lib/jvm/java-17-openjdk-{ARCHITECTURES[THIS]}"
        assert environment["JAVA_HOME"] == where

    def test_it_queries_as_a_user_that_it_does_not_know(
        self, spark_root: Path, environment: dict[str, str]
    ) -> None:
        query = "SELECT topic, count(*) AS n FROM records WHERE topic LIKE 'crash-%' GROUP BY topic"
        words = ("query", "--output", "csv", f"{query} ORDER BY topic", "/data/logs")
        done = in_container(spark_root, "4711", "/tmp", environment, "/opt/kdump/bin/kdump", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[1:] == [
            "crash-compact,276",
            "crash-none,834",
            "crash-txn,333",
        ]

    def test_without_a_place_for_temporary_files_it_says_what_to_mount(
        self, spark_root: Path, environment: dict[str, str]
    ) -> None:
        words = ("/opt/kdump/bin/kdump", "query", "SELECT 1", "/data/logs")
        done = in_container(spark_root, "65532", "", environment, *words)
        assert done.returncode == 8
        assert len(done.stderr.splitlines()) == 1
        assert "mount a volume or a tmpfs at /tmp" in done.stderr
