"""Waiting for the answer of a store: who is told, and what ends it."""

from __future__ import annotations

import threading

import pytest

from kdump import phases
from kdump.errors import StoreGoneError, UsageProblem
from kdump.storage import interruptible as waiting
from kdump.storage import store_connection
from kdump.storage.interruptible import interruptible
from kdump.storage.places import forget_places, parse_location
from kdump.storage.store_limits import StoreLimits, without_limits


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WATCH_SECONDS", 0.001)


def test_progress_says_that_kdump_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_connection, "WAITING_SECONDS", 0.0)
    answered = threading.Event()
    shown = []

    def watch(_seconds: float) -> None:
        current = phases.current()
        if current is not None:
            shown.append(current.what)
            answered.set()

    assert store_connection._waited_for(answered.wait, watch, "s3://disks/a")
    assert set(shown) == {"waiting for the store to answer: s3://disks/a"}
    assert phases.current() is None


def test_a_store_that_cannot_be_connected_to_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may lack the credentials or the network: each file would wait as long again."""
    monkeypatch.setattr(store_connection, "GONE_SECONDS", 0.0)
    tries = []

    class Unreachable:
        @staticmethod
        def from_uri(uri: str) -> None:
            tries.append(uri)
            raise OSError("no network")

    monkeypatch.setattr("pyarrow.fs.FileSystem", Unreachable)
    forget_places()
    location = parse_location("s3://unreachable/orders-0")
    for _ in range(2):
        with pytest.raises(OSError, match="no network"):
            location.entries()
    for _ in range(2):
        with pytest.raises(StoreGoneError, match="gave up after"):
            location.entries()
    assert len(tries) == 3
    forget_places()


@pytest.mark.parametrize("is_main", [True, False])
def test_what_the_watch_raises_leaves_the_call(is_main: bool) -> None:
    answered = threading.Event()
    raised: list[BaseException] = []

    def watch(_seconds: float) -> None:
        raise TimeoutError("too long")

    def wait() -> None:
        try:
            interruptible(answered.wait, watch)
        except TimeoutError as failure:
            raised.append(failure)

    if is_main:
        wait()
    else:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    answered.set()
    assert [str(each) for each in raised] == ["too long"]


def test_limits_are_options_of_the_uri() -> None:
    options = "timeout=7&region=eu&lowest_rate=100"
    limits = StoreLimits.of(options, "s3://disks")
    assert (limits.timeout_s, limits.lowest_rate) == (7, 100)
    assert limits.seconds_for(1000) == 17
    assert without_limits(options) == "region=eu"


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "\u0661", "1" * 11, "x"])
def test_what_is_no_limit_is_refused(value: str) -> None:
    with pytest.raises(UsageProblem, match="not a number of seconds, from 1 on"):
        StoreLimits.of(f"timeout={value}", "s3://disks")
