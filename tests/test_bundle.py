"""The bundle runs where there is nothing but Linux: no Python, no C library, no network."""

from __future__ import annotations

import ast
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders.empty_roots import in_empty_root, require_namespaces
from builders.in_process import run_kdump
from builders.mounts import mounted
from builders.releases import THIS, only
from kdump.cli.command_group import command_names

pytestmark = pytest.mark.soak

COMPACTED: Final = "crash-compact"
USERS: Final = {"root of the namespace": "0", "another user": "1000"}
ONLY_FOR_SPARK: Final = {"prompt_toolkit", "py4j", "pyspark"}
LEFT_OUT: Final = ONLY_FOR_SPARK | {"botocore", "hdfs_native"}


def test_asking_for_help_makes_nothing(repository_root: Path, tmp_path: Path) -> None:
    words = [sys.executable, str(repository_root / "bundle" / "bundle.py"), "--help"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: ./dev bundle [-h] [--machine {aarch64,x86_64}] [folder]")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def archive(machine_release: Path) -> Path:
    return only(machine_release, f"kdump-*-{THIS}.tar.gz")


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the bundle, in a path that programs do not expect."""
    target = tmp_path_factory.mktemp("of the bundle") / "Überall & 'nirgends': $x;"
    with tarfile.open(archive) as opened:
        opened.extractall(target, filter="data")
    (folder,) = target.iterdir()
    return folder


def run(
    unpacked: Path, *words: str | Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [unpacked / "bin" / "kdump", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


# An empty root


@pytest.fixture(scope="module")
def empty_root(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the bundle and nothing else."""
    root = tmp_path_factory.mktemp("empty") / "root"
    shutil.copytree(unpacked, root / "opt" / "a: kdump")
    require_namespaces()
    return root


@pytest.fixture
def data(empty_root: Path, fixtures: Path) -> Iterator[Path]:
    """Put a log directory of a broker that was killed into the empty root."""
    path = shutil.copytree(fixtures / "out" / "crashed" / "d1", empty_root / "data", symlinks=True)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
def test_in_an_empty_root_it_prints_and_writes_what_the_installed_one_does(
    user: str, empty_root: Path, data: Path, tmp_path: Path
) -> None:
    kdump = "/opt/a: kdump/bin/kdump"
    here = shutil.copytree(data, tmp_path / "data", symlinks=True)
    for words in (["info", "data"], ["verify", "--output", "jsonl", "data"]):
        installed = run_kdump(words, tmp_path)
        bundled = in_empty_root(user, empty_root, kdump, *words)
        assert (bundled.returncode, bundled.stderr) == (installed.exit_status, "")
        assert without_time(bundled.stdout) == without_time(installed.stdout.decode())
    recover = ["recover", "--now", "2026-11-22T00:00:00Z", "data"]
    installed = run_kdump(recover, tmp_path)
    bundled = in_empty_root(user, empty_root, kdump, *recover)
    assert bundled.returncode == installed.exit_status, bundled.stderr
    assert logs_of(data) == logs_of(here)
    compact = ["compact", "--topic", COMPACTED, "--config", "cleanup.policy=compact", "data"]
    installed = run_kdump(compact, tmp_path)
    bundled = in_empty_root(user, empty_root, kdump, *compact)
    assert (bundled.returncode, bundled.stderr) == (installed.exit_status, "")
    assert "freed" in bundled.stdout
    assert logs_of(data) == logs_of(here)
    assert in_empty_root(user, empty_root, kdump, "undo", "data").returncode == 0


def without_time(text: str) -> list[str]:
    """The lines that do not say how long it took."""
    return [line for line in text.splitlines() if "seconds" not in line and " s, " not in line]


def logs_of(root: Path) -> dict[str, bytes]:
    """The files that a broker reads, without kdump's own and the lock."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".kdump" not in str(path.relative_to(root)) and path.suffix != ".lock"
    }


def test_in_an_empty_root_every_command_has_its_help(empty_root: Path) -> None:
    for name in command_names():
        done = in_empty_root("1000", empty_root, "/opt/a: kdump/bin/kdump", name, "--help")
        assert (done.returncode, done.stderr) == (0, ""), name
        assert done.stdout.startswith(f"Usage: kdump {name} "), name


@pytest.mark.parametrize("words", ["/bin ./kdump", "/bin ../bin/kdump", "/ ./bin/kdump"])
def test_without_proc_it_is_found_by_relative_paths(words: str, empty_root: Path) -> None:
    cwd, program = words.split()
    done = in_empty_root("0", empty_root, program, "--version", cwd=f"/opt/a: kdump{cwd}")
    assert done.stdout.startswith("kdump "), done.stderr


def test_without_proc_it_is_found_through_links(empty_root: Path) -> None:
    link = empty_root / "usr" / "bin" / "kdump"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("../../opt/hop")
    (empty_root / "opt" / "hop").symlink_to("/opt/a: kdump/bin/kdump")
    done = in_empty_root("0", empty_root, "/usr/bin/kdump", "--version")
    assert done.stdout.startswith("kdump "), done.stderr


def test_libraries_that_the_host_preloads_are_ignored(empty_root: Path) -> None:
    (empty_root / "etc").mkdir(exist_ok=True)
    (empty_root / "etc" / "ld.so.preload").write_text("/nowhere.so\n")
    done = in_empty_root("0", empty_root, "/opt/a: kdump/bin/kdump", "--version")
    assert done.stdout.startswith("kdump ")
    assert done.stderr == ""


def test_in_an_empty_root_workers_start_as_forks_and_as_new_interpreters(empty_root: Path) -> None:
    program = """
import operator, sys
from kdump.processes.worker_pool import WorkerPool
for method in ("fork", "spawn"):
    with WorkerPool(operator.methodcaller("send", method), 1, method) as pool:
        print(pool.pipes[0].recv(), sys.executable)
"""
    python = "/opt/a: kdump/lib/kdump/python"
    done = in_empty_root("1000", empty_root, python, "-c", program)
    assert done.stdout == f"fork {python}\nspawn {python}\n", done.stderr


# What is in it


def imported_modules(folder: Path) -> set[str]:
    """Return the modules of others that any module of kdump imports anywhere."""
    found = set[str]()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
    return {each for each in found if each.partition(".")[0] not in {"kdump", *LEFT_OUT}}


def test_everything_that_kdump_imports_is_in_it(unpacked: Path, repository_root: Path) -> None:
    program = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
outside = [each.__file__ for each in sys.modules.values() if getattr(each, "__file__", None)]
print(*(path for path in outside if not path.startswith(sys.prefix)))
"""
    names = sorted(imported_modules(repository_root / "kdump"))
    python = unpacked / "lib" / "kdump" / "python"
    done = subprocess.run(
        [python, "-c", program, *names], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_every_module_is_compiled(unpacked: Path) -> None:
    tag = sys.implementation.cache_tag
    sources = {path.with_suffix("") for path in unpacked.rglob("*.py")}
    compiled = {
        path.parents[1] / path.name.removesuffix(f".{tag}.pyc") for path in unpacked.rglob("*.pyc")
    }
    assert compiled == sources


def test_no_library_of_the_machine_is_used(unpacked: Path) -> None:
    program = """
import numpy, pyarrow.parquet, pyarrow.fs, cramjam, lzma, ctypes, ssl, sys
print(*{line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if ".so" in line},
      sep="\\n")
"""
    python = unpacked / "lib" / "kdump" / "python"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) > 20
    assert all(line.startswith(f"{unpacked}/") for line in done.stdout.splitlines())


def test_each_part_has_its_licence(unpacked: Path) -> None:
    parts = (unpacked / "README").read_text().partition("Contents")[2].splitlines()[3:]
    named = {line.replace(",", " ").split()[0].lower() for line in parts}
    with_licence = {
        folder.name.lower()
        for folder in (unpacked / "share" / "licenses").iterdir()
        if any(path.stat().st_size > 100 for path in folder.iterdir())
    }
    assert named == with_licence
    assert {"kdump", "python", "libc6", "pyarrow"} & named >= {"kdump", "python", "pyarrow"}


def test_it_has_manual_pages_and_completions(unpacked: Path, repository_root: Path) -> None:
    pages = {path.stem for path in (repository_root / "man").glob("*.rst")}
    assert {path.stem for path in (unpacked / "share" / "man" / "man1").iterdir()} == pages
    for name in ("bash-completion/completions/kdump", "zsh/site-functions/_kdump"):
        assert "_KDUMP_COMPLETE" in (unpacked / "share" / name).read_text()
    fish = unpacked / "share" / "fish" / "vendor_completions.d" / "kdump.fish"
    assert "_KDUMP_COMPLETE" in fish.read_text()


def test_it_has_no_spark_and_says_so(unpacked: Path, log_dir: Path) -> None:
    assert not list(unpacked.rglob("pyspark*"))
    done = run(unpacked, "query", "SELECT 1", log_dir)
    assert done.returncode == 8
    assert done.stderr.startswith("kdump: Spark is not installed")
    assert len(done.stderr.splitlines()) == 1


def test_it_is_written_with_its_checksum(repository_root: Path, tmp_path: Path) -> None:
    program = """
import bundle
bundle._fill_bundle = lambda folder, launcher, system: (folder / "README").write_text("made")
bundle.main()
"""
    subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env=os.environ | {"PYTHONPATH": f"{repository_root / 'bundle'}:{repository_root}"},
        check=True,
        capture_output=True,
    )
    archive, checksum = sorted(tmp_path.iterdir())
    assert checksum.name == f"{archive.name}.sha256"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert checksum.read_text() == f"{digest}  {archive.name}\n"
    with tarfile.open(archive) as opened:
        names = [member.name.partition("/")[2] for member in opened]
    assert names == [".", "README"]


def test_the_bytes_of_an_archive_depend_on_the_content_only(
    repository_root: Path, tmp_path: Path
) -> None:
    program = """
import archive, pathlib, sys, tarfile
add = tarfile.TarFile.addfile
def add_with_content(self, member, content=None):
    if content is None and member.isreg() and member.size:
        raise ValueError("as Python 3.13 and later do")
    add(self, member, content)
tarfile.TarFile.addfile = add_with_content
at = pathlib.Path(sys.argv[1])
files = archive.CompressedFiles()
for name in ("first", "again"):
    archive.write_archive(at / "kdump", at / f"{name}.tar.gz", 7, files)
"""
    large = bytes(range(256)) * 2000 + b"odd"
    contents = {"small": b"text", "large": large, "last": b""}
    changed = contents | {"large": large[:-1] + b"!"}
    made = []
    for at, files in enumerate((contents, dict(reversed(contents.items())), changed)):
        folder = tmp_path / str(at) / "kdump"
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
            os.utime(folder / name, (at, at))
        (folder / "twin").hardlink_to(folder / "small")
        subprocess.run(
            [sys.executable, "-c", program, folder.parent],
            env=os.environ | {"PYTHONPATH": f"{repository_root / 'bundle'}"},
            check=True,
        )
        first, again = (folder.parent / f"{name}.tar.gz" for name in ("first", "again"))
        assert first.read_bytes() == again.read_bytes()
        with tarfile.open(first) as opened:
            opened.extractall(folder.parent / "unpacked", filter="data")
        found = {path.name: path.read_bytes() for path in folder.parent.glob("unpacked/kdump/*")}
        assert found == files | {"twin": b"text"}
        made.append(first.read_bytes())
    assert made[0] == made[1] != made[2]


# Where it runs


def test_it_starts_in_a_third_of_a_second(unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    for words in (["--version"], ["info", str(tmp_path)]):
        run(unpacked, *words)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run(unpacked, *words).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert used < 0.3


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LANG": "C", "LC_ALL": "POSIX"},
        {"LANG": "de_DE.ISO-8859-1", "LC_ALL": "xx_YY.utf8", "LOCPATH": "/nowhere"},
        {"HOME": "/nowhere", "TMPDIR": "/nowhere", "XDG_CACHE_HOME": "/proc"},
        {"PYTHONHOME": "/nowhere", "PYTHONPLATLIBDIR": "x", "PYTHONMALLOC": "x"},
    ],
    ids=lambda each: " ".join(each) or "empty",
)
def test_it_does_not_depend_on_the_environment(
    environment: dict[str, str], unpacked: Path, log_dir: Path
) -> None:
    done = run(unpacked, "verify", log_dir, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 partition, " in done.stdout


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Write a log directory with a name that is not ASCII."""
    from builders.verified import LogModel

    return LogModel().write(tmp_path / "lögs \u202e").parent


def test_variables_load_no_other_code(unpacked: Path, tmp_path: Path, log_dir: Path) -> None:
    for name in ("struct", "sitecustomize", "usercustomize", "kdump", "click"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hostile')")
    (tmp_path / "libc.so.6").write_text("hostile")
    (tmp_path / "libpython3.11.so.1.0").write_text("hostile")
    environment = dict.fromkeys(
        ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "LD_LIBRARY_PATH", "GCONV_PATH"),
        str(tmp_path),
    )
    environment |= {"PYTHONSTARTUP": str(tmp_path / "struct.py"), "PYTHONINSPECT": "1"}
    environment |= {"LD_PRELOAD": str(tmp_path / "libc.so.6"), "LD_AUDIT": "x.so"}
    done = subprocess.run(
        [unpacked / "bin" / "kdump", "verify", log_dir],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    # Bash would print that it cannot preload; the program itself is static.
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_found_through_links_and_from_anywhere(unpacked: Path, tmp_path: Path) -> None:
    link = tmp_path / "bin" / "a-kdump"
    link.parent.mkdir()
    (tmp_path / "hop").symlink_to(unpacked / "bin" / "kdump")
    link.symlink_to("../hop")
    relative = os.path.relpath(unpacked / "bin" / "kdump", tmp_path)
    for program in (link, "bin/a-kdump", relative):
        done = subprocess.run(
            [program, "--version"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.stdout.startswith("kdump "), done.stderr
    found = subprocess.run(
        ["a-kdump", "--version"],
        env={"PATH": str(link.parent)},
        executable=link,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.startswith("kdump ")


def test_it_writes_nothing_where_it_lies(unpacked: Path, log_dir: Path) -> None:
    before = snapshot(unpacked)
    assert run(unpacked, "verify", log_dir).returncode == 0
    assert run(unpacked, "export", "--out", log_dir.parent / "out", log_dir).returncode == 0
    assert snapshot(unpacked) == before


def snapshot(folder: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")
    )


@pytest.mark.parametrize("name", ["a$LIB", "${ORIGIN}", "x$PLATFORM-y"])
def test_a_path_that_the_loader_would_change_is_refused(
    unpacked: Path, tmp_path: Path, name: str
) -> None:
    program = tmp_path / name / "bin" / "kdump"
    program.parent.mkdir(parents=True)
    shutil.copy(unpacked / "bin" / "kdump", program)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 8
    assert len(done.stderr.splitlines()) == 1
    assert "has $ORIGIN, $LIB or $PLATFORM in it" in done.stderr


def test_it_runs_from_a_path_that_is_not_utf_8(
    unpacked: Path, tmp_path: Path, log_dir: Path
) -> None:
    at = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n"))
    at.mkdir()
    with mounted("--bind", str(unpacked), at=at):
        done = run(at, "verify", log_dir)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_part_that_was_not_unpacked_is_named(unpacked: Path, tmp_path: Path) -> None:
    shutil.copy(unpacked / "bin" / "kdump", tmp_path / "kdump")
    done = subprocess.run([tmp_path / "kdump"], capture_output=True, text=True, check=False)
    assert done.returncode == 8
    assert len(done.stderr.splitlines()) == 1
    assert "unpack the whole archive" in done.stderr


def test_closed_streams_end_it_as_the_installed_one(unpacked: Path, log_dir: Path) -> None:
    shell = '"$1" verify --output jsonl "$2" >&-; echo $? >&2'
    done = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", unpacked / "bin" / "kdump", log_dir],
        capture_output=True,
        text=True,
        check=False,
    )
    installed = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", Path(sys.executable).parent / "kdump", log_dir],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == installed.stderr


def test_it_runs_from_a_file_system_that_is_read_only(unpacked: Path, tmp_path: Path) -> None:
    at = tmp_path / "mounted"
    at.mkdir()
    with mounted("--bind", str(unpacked), at=at):
        subprocess.run(["mount", "-o", "remount,bind,ro", at], check=True)
        assert run(at, "--version").stdout.startswith("kdump ")
        subprocess.run(["mount", "-o", "remount,bind,noexec", at], check=True)
        with pytest.raises(PermissionError):
            run(at, "--version")
