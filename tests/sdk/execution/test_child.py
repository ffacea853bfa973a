"""What a child process says, frame by frame; here the test itself is the child."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure import Activity, StopReason
from tenure.sdk.worker.execution import child
from tenure.sdk.worker.execution.frame import (
    STOP,
    Boot,
    BrokenFrame,
    ChildBeat,
    Done,
    Frames,
    Report,
    Run,
    Taken,
    write,
)
from tenure.v1 import task_pb2
from tests.sdk.execution import process_activities as on

REPORTS: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


class Parent:
    """The worker's side, in a thread of its own."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self.pipe, self._stops = os.pipe()
        self._frames = Frames(self._ours)
        self._number = 0
        write(self._ours, Boot(list(sys.path), os.environ.get("PYTHONPATH")))

    def run(self, activity: Activity[..., Any], module: str = "", **arguments: object) -> None:
        self._number += 1
        task = task_pb2.AssignedTask(
            task_id="a", attempt=1, encoding="json", input=json.dumps(arguments).encode()
        )
        order = Run(
            number=self._number,
            module=module or on.__name__,
            name=activity.name,
            task=task.SerializeToString(),
            namespace="shop",
            worker_id="w",
        )
        write(self._ours, order)

    def stop(self, ahead: int = 0) -> None:
        place = list(StopReason).index(StopReason.TIMED_OUT)
        os.write(self._stops, STOP.pack(self._number + ahead, place))

    def reports(self) -> list[Report]:
        """Return what is said of a run, up to its end."""
        found: list[Report] = []
        while not (found and isinstance(found[-1], Done)):
            report = self._frames.read(REPORTS)
            assert report is not None
            found.append(report)
        return found

    def close(self) -> None:
        self._ours.close()

    def end(self) -> None:
        """Be gone, and wait until the child has noticed."""
        os.close(self._stops)
        for thread in threading.enumerate():
            if thread.name == "tenure-stops":
                thread.join()
        os.close(self.pipe)
        self.theirs.close()


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parent]:
    before = signal.getsignal(signal.SIGTERM)
    # The end of its parent is the end of a child; here it is only that of the thread.
    monkeypatch.setattr(os, "_exit", lambda _: None)
    made = Parent()
    yield made
    # Before that a late stop may still become a signal, which would end this process.
    made.end()
    signal.signal(signal.SIGTERM, before)


def serve(parent: Parent, talk: Any) -> list[list[Report]]:
    """Be the child while ``talk`` is the parent; return what was said of each run."""
    said: list[list[Report]] = []

    def speak() -> None:
        try:
            talk(said)
        finally:
            parent.close()

    speaking = threading.Thread(target=speak)
    speaking.start()
    child.serve(parent.theirs, parent.pipe)
    speaking.join()
    return said


def finish_of(reports: list[Report]) -> task_pb2.TaskFinish:
    last = reports[-1]
    assert isinstance(last, Done)
    assert last.finish is not None
    return task_pb2.TaskFinish.FromString(last.finish)


def test_runs_are_taken_done_and_failed(parent: Parent) -> None:
    def talk(said: list[list[Report]]) -> None:
        parent.run(on.double, number=21)
        said.append(parent.reports())
        parent.run(on.double, number="many")
        said.append(parent.reports())
        parent.run(on.double, "no.such.module")
        said.append(parent.reports())
        parent.run(on.double, "json")
        said.append(parent.reports())

    good, bad, lost, empty = serve(parent, talk)
    assert isinstance(good[0], Taken)
    assert finish_of(good).output == b"42"
    assert finish_of(bad).error.category == task_pb2.ERROR_CATEGORY_DATA_QUALITY
    assert "cannot be imported" in finish_of(lost).error.message
    assert "has no activity 'double-it'" in finish_of(empty).error.message


def test_heartbeats_are_thinned_out_and_the_last_one_goes_before_the_end(parent: Parent) -> None:
    def talk(said: list[list[Report]]) -> None:
        parent.run(on.many_beats, count=2_000)
        said.append(parent.reports())

    (reports,) = serve(parent, talk)
    beats = [each for each in reports if isinstance(each, ChildBeat)]
    assert (beats[0].details, beats[-1].details) == (b"[0]", b"[1999]")
    assert len(beats) < 1_000


def test_a_stop_is_raised_at_once_before_the_run_or_after_a_shield(
    parent: Parent, tmp_path: Path
) -> None:
    def talk(said: list[list[Report]]) -> None:
        parent.stop(ahead=1)
        parent.run(on.wait, mark=str(tmp_path / "early"))
        said.append(parent.reports())
        parent.run(on.wait, mark=str(tmp_path / "late"))
        while not (tmp_path / "late").exists():
            pass
        parent.stop()
        said.append(parent.reports())
        parent.run(on.shielded, mark=str(tmp_path / "shielded"))
        while not (tmp_path / "shielded").exists():
            pass
        parent.stop()
        said.append(parent.reports())
        parent.stop(ahead=-1)
        parent.run(on.double, number=1)
        said.append(parent.reports())

    early, late, shielded, other = serve(parent, talk)
    assert early[-1] == Done(None)
    assert late[-1] == Done(None)
    assert (tmp_path / "late").read_text() == "timed_out"
    assert shielded[-1] == Done(None)
    assert (tmp_path / "shielded").read_text() == "saved"
    assert finish_of(other).output == b"2"


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1"])
def test_what_is_no_frame_is_noticed(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        with pytest.raises(BrokenFrame):
            Frames(theirs).read(REPORTS)
