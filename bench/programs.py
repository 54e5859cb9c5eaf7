"""The programs that kdump is compared with, and the machine."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

from builders import kafka_jars
from case import Case, Program
from measuring import ROOT, kdump


def find_programs(cases: Iterable[Case], classpath: str | None) -> dict[Program, list[str]]:
    """Return the words that start what the cases are compared with, as far as it is available."""
    wanted = {other.program for case in cases for other in case.others}
    found = {program: kdump() for program in wanted if program.is_kdump}
    found[Program.CHECKSUMS] = [sys.executable, str(ROOT / "bench" / "checksums.py")]
    found[Program.WALK] = [sys.executable, "-ISs", str(ROOT / "bench" / "walk.py")]
    copy = 'cp -r "$1" "$2" && find "$2" -type f -print0 | xargs -0 sha256sum'
    found[Program.COPY_AND_SUM] = ["sh", "-c", copy, "sh"]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    try:
        if wanted & {Program.DUMP_TOOL, Program.DUMP_AND_GREP}:
            jars = classpath or kafka_jars.jars_classpath()
            tool = "org.apache.kafka.tools.DumpLogSegments"
            dump = ["java", quiet, "-Dfile.encoding=UTF-8", "-cp", jars, tool]
            found[Program.DUMP_TOOL] = dump
            piped = f'log=$1; shift; {shlex.join(dump)} --print-data-log --files "$log"'
            found[Program.DUMP_AND_GREP] = ["sh", "-c", piped + ' | grep -a "$@"', "sh"]
        if wanted & {Program.LOADER, Program.CLEANER}:
            threads = f"-Drecovery.threads={os.cpu_count()}"
            java = ["java", quiet, threads, "-cp", kafka_jars.programs_classpath()]
            found[Program.LOADER] = [*java, "LoaderServer"]
            found[Program.CLEANER] = [*java, "CleanerServer"]
    except kafka_jars.ReferenceUnavailable as failure:
        print(f"not compared with Kafka: {failure}", file=sys.stderr)
    return found


def describe_kdump() -> str:
    """Return the version of kdump, and the last commit that changed it or what measures it."""
    version = subprocess.run([*kdump(), "--version"], capture_output=True, text=True, check=True)
    described = version.stdout.strip()
    if shutil.which("git") is None:
        return described
    sources = ("--", "kdump", "bench/*.py")
    if commit := _git("log", "-1", "--format=%h", *sources).strip():
        described += f", commit {commit}"
    if changes := _git("diff", "HEAD", *sources):
        described += f" with changes {zlib.crc32(changes.encode()):08x}"
    return described


def _git(*words: str) -> str:
    """Return what git prints; nothing outside of a clone."""
    said = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, errors="replace", check=False
    )
    return said.stdout


def describe_machine() -> str:
    """Describe the machine in one line."""
    model = "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    java = "no Java"
    if shutil.which("java"):
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
        java = said.stderr.partition("\n")[0]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{model}, {os.cpu_count()} cores, {memory:.0f} GB of memory,"
        f" Python {platform.python_version()}, {java}"
    )
