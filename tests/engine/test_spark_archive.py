from __future__ import annotations

import os
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from builders.programs import in_a_fresh_process
from kdump.engine import class_archive, spark_archive
from kdump.engine.class_archive import ClassArchive
from kdump.engine.spark_installation import Java, Spark
from kdump.engine.spark_java import JVM_OPTIONS, JavaProcess, gateway_command
from kdump.errors import KdumpError
from kdump.storage.private_folder import cache_folder, is_private

JAVA = Java(Path("/java/bin/java"), "17.0.1")
SPARK = Spark(Path("/spark"), "4.3.0")


def find(java: Java = JAVA, spark: Spark = SPARK) -> ClassArchive:
    found = class_archive.find_archive(java, spark, JVM_OPTIONS, os.environ)
    assert found is not None
    return found


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    """Return the path of an archive, in an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = find()
    assert found.path.parent == tmp_path / "kdump"
    found.path.parent.mkdir(mode=0o700)
    return found


@pytest.fixture
def kept(archive: ClassArchive) -> ClassArchive:
    """Return an existing archive."""
    part = archive.path.with_suffix(".1.part")
    part.write_bytes(b"classes")
    archive.keep(part)
    return archive


@pytest.mark.parametrize(
    ("java", "spark"),
    [
        (Java(JAVA.path, "17.0.2"), SPARK),
        (Java(Path("/other/bin/java"), JAVA.identity), SPARK),
        (JAVA, Spark(SPARK.home, "4.3.1")),
        (JAVA, Spark(Path("/other"), SPARK.version)),
    ],
)
def test_each_java_and_spark_version_has_its_own_archive(
    archive: ClassArchive, java: Java, spark: Spark
) -> None:
    assert find(java, spark) != archive


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_CACHE_HOME": "/cache", "HOME": "/ann"}, Path("/cache/kdump")),
        ({"XDG_CACHE_HOME": "cache", "HOME": "/ann"}, Path("/ann/.cache/kdump")),
        ({"HOME": "/ann"}, Path("/ann/.cache/kdump")),
        ({}, None),
    ],
)
def test_the_cache_folder_follows_the_environment(
    environment: dict[str, str], folder: Path | None
) -> None:
    assert cache_folder(environment) == folder


def test_a_complete_archive_is_not_created_again(archive: ClassArchive) -> None:
    assert spark_archive._is_missing(archive)
    part = archive.path.with_suffix(".1.part")
    part.touch()
    archive.keep(part)
    assert not spark_archive._is_missing(archive)


def test_an_archive_is_not_created_twice_at_the_same_time(archive: ClassArchive) -> None:
    part = archive.path.with_suffix(".123.part")
    part.touch()
    assert not spark_archive._is_missing(archive)
    os.utime(part, (0, 0))
    assert spark_archive._is_missing(archive)


def test_an_archive_that_java_did_not_write_is_not_kept(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_archive, "_archive", lambda: archive)
    monkeypatch.setattr(spark_archive, "SparkSession", MagicMock())
    monkeypatch.setattr(spark_archive, "_run_statements", MagicMock())
    spark_archive.make()
    assert not list(archive.path.parent.iterdir())


def test_java_gets_the_jars_that_jobs_and_sql_need(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    (jars / "connect-repl").mkdir(parents=True)
    for name in ("spark-sql_2.13-4.3.0.jar", "spark-mllib_2.13-4.3.0.jar", "guava.jar"):
        (jars / name).touch()
    expected = f"{jars}/guava.jar:{jars}/spark-sql_2.13-4.3.0.jar"
    assert Spark(tmp_path, "4.3.0").class_path == expected


def test_without_java_there_is_no_archive_and_no_error(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(archive.path.parent))
    spark_archive.make_in_background()
    assert not list(archive.path.parent.iterdir())


def test_an_archive_of_the_user_is_used(kept: ClassArchive) -> None:
    assert kept.is_usable()
    assert kept.is_intact()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
@pytest.mark.parametrize("which", ["path", "checksum_path"])
def test_an_archive_that_others_can_write_to_is_not_used(
    kept: ClassArchive, which: str, mode: int
) -> None:
    path: Path = getattr(kept, which)
    path.chmod(mode)
    assert not kept.is_usable()
    assert spark_archive._is_missing(kept)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_an_archive_in_a_directory_writable_by_others_is_neither_used_nor_created(
    kept: ClassArchive, mode: int
) -> None:
    kept.path.parent.chmod(mode)
    assert not kept.is_usable()
    assert not spark_archive._is_missing(kept)


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_every_directory_on_the_path_must_be_private(
    archive: ClassArchive, tmp_path: Path, mode: int
) -> None:
    tmp_path.chmod(mode)
    archive.path.parent.rmdir()
    assert not spark_archive._is_missing(archive)
    assert not archive.path.parent.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
@pytest.mark.parametrize("whose", ["archive", "directory", "link"])
def test_an_archive_of_another_user_is_not_used(
    kept: ClassArchive, tmp_path: Path, whose: str
) -> None:
    folder = kept.path.parent
    if whose == "link":
        real = folder.rename(tmp_path / "real")
        folder.symlink_to(real)
        assert kept.is_usable(), "one's own link is followed"
        os.chown(folder, 1234, 1234, follow_symlinks=False)
    else:
        os.chown(kept.path if whose == "archive" else folder, 1234, 1234)
    assert not kept.is_usable()


def test_a_circle_of_links_is_not_private(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert not is_private(tmp_path / "a" / "file")


def test_a_pipe_in_place_of_an_archive_is_not_opened(kept: ClassArchive) -> None:
    kept.path.unlink()
    os.mkfifo(kept.path, 0o600)
    assert not kept.is_usable()


@pytest.mark.parametrize("content", [b"", b"class", b"classeS", b"classes+"])
def test_a_changed_archive_is_detected(kept: ClassArchive, content: bytes) -> None:
    kept.path.chmod(0o600)
    kept.path.write_bytes(content)
    assert not kept.is_intact()


def fake_java(folder: Path, condition: str) -> Java:
    """Write a Java that fails under a condition, and otherwise starts Spark's gateway."""
    program = folder / "java"
    program.write_text(
        "#!/bin/sh\n"
        f"if {condition}; then exit 134; fi\n"
        "printf '\\0\\0\\0\\7\\0\\0\\0\\6secret' >\"$_PYSPARK_DRIVER_CONN_INFO_PATH.part\"\n"
        'mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.part" "$_PYSPARK_DRIVER_CONN_INFO_PATH"\n'
        "cat\n"
    )
    program.chmod(0o755)
    return Java(program, "fake")


def started(java: Java, kept: ClassArchive, home: Path) -> None:
    """Start a gateway with an archive, without a second attempt."""
    spark = Spark(home, "0")
    command = gateway_command(java, spark, heap="64m", archive=kept, archive_to=None)
    process = JavaProcess(command, spark_home=home, archive=kept)
    try:
        gateway = process.wait_for_gateway()
        assert (gateway.port, gateway.secret) == (7, "secret")
    finally:
        process.abort()


WITH_ARCHIVE = "echo $* | grep -q SharedArchiveFile"


def test_a_damaged_archive_is_removed_and_not_used(kept: ClassArchive, tmp_path: Path) -> None:
    kept.path.chmod(0o600)
    kept.path.write_bytes(b"broken!")
    started(fake_java(tmp_path, WITH_ARCHIVE), kept, tmp_path)
    assert not list(kept.path.parent.iterdir())


def test_an_archive_that_ends_java_is_removed_and_not_used(
    kept: ClassArchive, tmp_path: Path
) -> None:
    started(fake_java(tmp_path, WITH_ARCHIVE), kept, tmp_path)
    assert not list(kept.path.parent.iterdir())


def test_an_archive_is_kept_if_java_does_not_start_without_it_either(
    kept: ClassArchive, tmp_path: Path
) -> None:
    with pytest.raises(KdumpError, match="Spark did not start"):
        started(fake_java(tmp_path, "true"), kept, tmp_path)
    assert kept.is_intact()


MAPPED = """
from pathlib import Path
from builders.jobs import TellParents
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
from kdump.engine.job import Split
from kdump.storage.local_disk import local
with open_engine(EngineOptions(EngineChoice.SPARK), total_bytes=0) as engine:
    [(_, parents)] = engine.run(TellParents(), [Split(local("any"))])
    print(Path(f"/proc/{parents[1]}/maps").read_text())
"""


@pytest.mark.soak
def test_the_archive_is_created_used_and_replaced_if_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = in_a_fresh_process(
        "import runpy; runpy.run_module('kdump.engine.spark_archive', run_name='__main__')"
    )
    assert (made.stdout, made.stderr) == ("", "")
    archive = next((tmp_path / "kdump").glob("*.jsa"))
    assert str(archive) in in_a_fresh_process(MAPPED).stdout
    # This content makes a JVM crash.
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.seek(archive.stat().st_size // 3)
        file.write(bytes(3 << 20))
    output = in_a_fresh_process(MAPPED)
    assert output.stderr == ""
    assert str(archive) not in output.stdout


NOW_S = 1_800_000_000.0
DAY_SECONDS = 86_400


def made_for(folder: Path, name: str, *paths: Path, days_ago: float = 0) -> ClassArchive:
    """Write an archive that was used so many days ago."""
    archive = ClassArchive(folder / f"spark-4.3.0-{name}.jsa", paths)
    part = folder / f"{name}.part"
    part.write_bytes(b"classes")
    archive.keep(part)
    os.utime(archive.path, (NOW_S, NOW_S - days_ago * DAY_SECONDS))
    return archive


def test_archives_that_nobody_uses_are_removed_with_all_their_files(tmp_path: Path) -> None:
    there, gone = tmp_path, tmp_path / "gone"
    kept = made_for(tmp_path, "kept", there, days_ago=29)
    made_for(tmp_path, "old", there, days_ago=31)
    made_for(tmp_path, "removed", there, gone)
    other = tmp_path / "query-history"
    other.touch()
    class_archive.remove_unused(tmp_path, NOW_S)
    files = (kept.path, kept.checksum_path, kept.made_for_path, other)
    assert set(tmp_path.iterdir()) == set(files)
    assert kept.is_intact()


def test_an_archive_of_an_earlier_version_is_kept_for_its_time(tmp_path: Path) -> None:
    archive = made_for(tmp_path, "earlier", tmp_path / "gone", days_ago=29)
    archive.made_for_path.unlink()
    class_archive.remove_unused(tmp_path, NOW_S)
    assert archive.path.exists()
    class_archive.remove_unused(tmp_path, NOW_S + 2 * DAY_SECONDS)
    assert not archive.path.exists()


def test_using_an_archive_keeps_it(tmp_path: Path) -> None:
    archive = made_for(tmp_path, "used", tmp_path, days_ago=31)
    archive.note_use()
    assert archive.is_worth_keeping(time.time())


def test_nothing_is_removed_where_others_can_write(tmp_path: Path) -> None:
    archive = made_for(tmp_path, "old", days_ago=31)
    tmp_path.chmod(0o777)
    class_archive.remove_unused(tmp_path, NOW_S)
    assert archive.path.exists()
