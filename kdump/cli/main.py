"""The ``kdump`` command: run a subcommand, and report every failure in one line."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click

import kdump
from kdump.cli.command_group import LazyGroup, ReaderGoneError
from kdump.cli.options.verbose_option import forget_verbose, is_verbose, note_verbose
from kdump.cli.output.colour import failure_line
from kdump.cli.output.events import write_line
from kdump.cli.output.json_output import JsonOutput
from kdump.cli.output.place_problems import report_holders, report_places, report_requests
from kdump.cli.output.streams import (
    OutputError,
    abandon_output,
    flush_output,
    open_standard_streams,
)
from kdump.errors import ExitStatus, KdumpError, Terminated, reason_of
from kdump.log.lock_holders import forget_holders
from kdump.processes.isolation import protect_process
from kdump.storage.interruptible import calls_left
from kdump.storage.places import forget_places, spool_into


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(kdump.__version__, prog_name="kdump", message="%(prog)s %(version)s")
@click.option(
    "--spool",
    type=click.Path(),
    metavar="DIR",
    help="Unpack compressed archives to DIR while the command runs.",
)
@click.option(
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=note_verbose,
    help="Report the engine and the requests to object stores, on standard error.",
)
def cli(spool: str | None) -> None:
    """Inspect, check and repair the log directories of a stopped Kafka broker.

    Exit status (added up): 0 no damage, 1 damage found and repaired (grep: nothing matched; diff:
    something differs), 4 damage left, 8 operational error (cannot read, locked, disk full), 16
    usage error.
    """
    if spool is not None:
        spool_into(Path(spool))


def run(args: Sequence[str] | None = None, **extra: Any) -> int:
    """Run the command line ``args`` (without the program's name); returns the exit status.

    A command's callback returns an :class:`ExitStatus`, or None for success. This function raises
    nothing. The notes of an exception, such as the outcome of each log directory, are reported
    before the exception itself. JSON output always gets its end, whatever ends the command.
    """
    answer = JsonOutput()
    try:
        status = _reported(args, answer, **extra)
    except KeyboardInterrupt as stop:  # while another failure was reported
        status = _stopped(stop)
    try:
        _clean_up(answer, status)
    except KeyboardInterrupt:
        # The output is complete, so there is nothing to stop any more.
        with contextlib.suppress(KeyboardInterrupt):
            _clean_up(answer, status)
    return status


def _clean_up(answer: JsonOutput, status: int) -> None:
    """Remove what the run has unpacked, and end its output."""
    with contextlib.suppress(OSError, ValueError):  # there is nowhere to report it
        report_holders()
        if is_verbose():
            report_requests()
    forget_places()
    with contextlib.suppress(OSError, KdumpError, ValueError):  # reported already
        answer.end(status)
        sys.stdout.flush()


def _reported(args: Sequence[str] | None, answer: JsonOutput, **extra: Any) -> int:
    """Run the command line, and report a failure; returns the exit status."""
    try:
        forget_places()
        forget_holders()
        forget_verbose()
        status = int(_run(args, obj=answer, **extra) or 0) | int(report_places())
        answer.end(status)
        sys.stdout.flush()
        return status
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt) as stop:
        return _stopped(stop)
    except click.UsageError as problem:
        path = problem.ctx.command_path if problem.ctx else "kdump"
        message = _sentence(problem)
        _report_lines(f"{path}: {message} See '{path} --help'.".split("\n"), problem)
        return int(ExitStatus.USAGE)
    except click.ClickException as problem:
        _report_lines(f"kdump: {problem.format_message()}".split("\n"), problem)
        return int(ExitStatus.OPERATIONAL_ERROR)
    except (ReaderGoneError, BrokenPipeError) as failure:
        abandon_output()
        _report("", failure.__cause__ or failure)
        # As other programs end, which the signal kills: 0 would say that nothing is damaged.
        return 128 + signal.SIGPIPE
    except OutputError as failure:
        abandon_output()
        _report(f"kdump: {failure}", failure)
        return int(failure.exit_status)
    except KdumpError as failure:
        if failure.trace:
            _report_trace(f"kdump: {failure}", failure.trace, failure)
        else:
            _report(f"kdump: {failure}", failure)
        return int(failure.exit_status)
    except OSError as failure:
        where = f"{failure.filename}: " if failure.filename else ""
        advice = "; raise the limit with 'ulimit -n'" if failure.errno == errno.EMFILE else ""
        _report(f"kdump: {where}{reason_of(failure)}{advice}", failure)
        return int(ExitStatus.OPERATIONAL_ERROR)
    except MemoryError as failure:
        _report("kdump: out of memory", failure)
        return int(ExitStatus.OPERATIONAL_ERROR)
    except Exception as failure:  # noqa: BLE001 - exit status 1 would say "repaired"
        import traceback

        what = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
        trace = "".join(traceback.format_exception(failure))
        _report_trace(f"kdump: internal error: {what}", trace, failure)
        return int(ExitStatus.OPERATIONAL_ERROR)


def _run(args: Sequence[str] | None, **extra: Any) -> ExitStatus | None:
    try:
        with _progress_shown():
            result: ExitStatus | None = cli.main(
                args=None if args is None else list(args),
                prog_name="kdump",
                standalone_mode=False,
                **extra,
            )
    except click.exceptions.NoArgsIsHelpError as request:
        click.echo(request.format_message())
        return ExitStatus.SOUND
    return result


def _progress_shown() -> contextlib.AbstractContextManager[object]:
    """Show progress on a terminal; elsewhere ``--progress`` asks for it."""
    if not sys.stderr.isatty():
        return contextlib.nullcontext()
    from kdump.cli.output.progress_bar import shown

    return shown()


def _sentence(problem: click.UsageError) -> str:
    """Describe a usage error; unknown names get a suggestion."""
    match problem:
        case click.NoSuchCommand(command_name=name, possibilities=similar):
            what = f"no command {name!r}"
        case click.NoSuchOption(option_name=name, possibilities=similar):
            what = f"no option {name!r}"
        case _:
            message = problem.format_message()
            if isinstance(problem, click.MissingParameter):
                # The words to choose from are on lines of their own.
                message = " ".join(message.split())
            return message if message.endswith((".", "?")) else f"{message}."
    return f"{what}; did you mean {similar[0]!r}?" if similar else f"{what}."


def _report(line: str, failure: BaseException) -> None:
    """Report the notes of a failure, then the failure itself, on standard error."""
    _report_lines([line] if line else [], failure)


def _report_trace(line: str, trace: str, failure: BaseException) -> None:
    """Report an internal error, and where its trace is."""
    where, *shown = _trace_place(trace).split("\n")
    _report_lines([f"{line}; {where}", *shown], failure)


def _report_lines(lines: Sequence[str], failure: BaseException) -> None:
    """As :func:`_report`; a line break within a line is part of a name, and is escaped."""
    # Printed output comes first. A failure to write it is reported later.
    with contextlib.suppress(OSError, KdumpError, ValueError):
        sys.stdout.flush()
    for line in (*getattr(failure, "__notes__", ()), *lines):
        with contextlib.suppress(OSError, ValueError):  # there is nowhere to report it
            write_line(failure_line(line), sys.stderr)
            sys.stderr.flush()


def _stopped(stop: BaseException) -> int:
    """Report a command that a signal stopped."""
    cause = stop.__cause__ if isinstance(stop, click.Abort) and stop.__cause__ else stop
    number = cause.signal_number if isinstance(cause, Terminated) else signal.SIGINT
    _report(f"kdump: stopped by {signal.Signals(number).name}", cause)
    return 128 + number


def _trace_place(trace: str) -> str:
    """Write a trace to a file, and return where it is."""
    import tempfile

    try:
        descriptor, path = tempfile.mkstemp(prefix="kdump-trace-", suffix=".txt", text=True)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(trace)
    except OSError:
        return f"the trace could not be written to a file:\n{trace}"
    return f"please report it with the trace in {path}"


_UNWINDING_SECONDS: Final = 5.0


def _stop_at_signals() -> None:
    """Make SIGTERM and SIGHUP stop a command as ^C does, so that locks are released.

    Further signals are ignored for a few seconds while the command unwinds, so that a second ^C
    does not leave a lock.
    """
    stopped_at: float | None = None

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped_at
        now = time.monotonic()
        if stopped_at is not None and now - stopped_at < _UNWINDING_SECONDS:
            return
        stopped_at = now
        raise Terminated(number)

    _handle_signals(stop)


def _handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, handler)


class _WithoutPandas:
    """Finds no pandas: where it is installed, Arrow would import it to make its first array.

    That takes seconds, and kdump does not use it.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Fail for pandas, and leave all other modules to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError("kdump does not use pandas", name=name)


def main() -> NoReturn:
    """Run the command line of this process, and end the process with its exit status."""
    # NumPy would start threads for linear algebra, which kdump does not use. Without them kdump
    # starts faster, and processes can be forked.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.meta_path.insert(0, _WithoutPandas())
    protect_process()
    open_standard_streams()
    status = None
    try:
        _stop_at_signals()
        status = run()
        _handle_signals(signal.SIG_DFL)  # Python would print a stack trace while it ends
    except KeyboardInterrupt as stop:  # just before the run, or just after it
        status = _stopped(stop) if status is None else status
    if not flush_output() and not status:
        status = int(ExitStatus.OPERATIONAL_ERROR)
    if calls_left():
        os._exit(status)  # Arrow would wait for the answer of a server
    gc.freeze()  # the process frees what is left, and sooner than the last collections
    sys.exit(status)
