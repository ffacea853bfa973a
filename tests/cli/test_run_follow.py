"""Runs that are followed: ``tenure runs tail`` and ``tenure run --wait``, on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tenure.cli.command.worker_process import REGISTERED
from tenure.cli.exit_code import ExitCode
from tenure.cli.show.run_line import step_text
from tenure.cli.show.run_view import ShownChildEnd, ShownEntry, ShownGroupEnd
from tenure.cli.show.view import ShownFailure
from tests.cli.command_process import CommandProcess
from tests.cli.conftest import Run, read
from tests.cli.server import ServerProcess
from tests.cli.terminal import Terminal
from tests.polling import eventually_sync

NOBODY: Final = "00000000-0000-7000-8000-000000000000"
QUEUE: Final = "followed"
MODULE: Final = """
import asyncio

from tenure import WorkflowContext, activity, signal, workflow

go = signal("go", None)


async def load(order: str) -> str:
    return f"{order} loaded"


async def charge(order: str) -> str:
    if order == "broken":
        raise ValueError("no such card")
    return f"{order} charged"


@activity(start_to_close="1m", queue="followed")
async def pack(number: int) -> int:
    return number


@activity(start_to_close="1m", queue="nowhere")
async def ship(order: str) -> str:
    return order


@workflow
async def sell(ctx: WorkflowContext, order: str) -> str:
    await ctx.step(load, order)
    await asyncio.gather(ctx.execute(pack, 1), ctx.execute(pack, 2))
    await ctx.wait_signal(go)
    await ctx.map(pack, range(3))
    return await ctx.step(charge, order)


@workflow
async def deliver(ctx: WorkflowContext, order: str) -> None:
    async def branch() -> None:
        await ctx.execute(ship, order)

    async with asyncio.TaskGroup() as group:
        group.create_task(branch())
        group.create_task(ctx.wait_signal(go))
        group.create_task(asyncio.sleep(86_400))


@workflow
async def again(ctx: WorkflowContext, left: int) -> int:
    await ctx.step(load, "again")
    if left:
        ctx.continue_as_new(left - 1)
    return left
"""


@pytest.fixture(scope="module")
def _worker(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder: Path = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(MODULE)
    with CommandProcess(
        folder, "worker", "shop", "--target", server.grpc, "--queue", QUEUE
    ) as process:
        process.until(REGISTERED)
        yield


pytestmark = pytest.mark.usefixtures("_worker")


def start(run: Run, type_name: str, **parameters: object) -> str:
    result = run("run", type_name, json.dumps(parameters), "--queue", QUEUE)
    assert result.exit_code == 0, result.output
    return str(result.stdout.strip())


def status(run: Run, run_id: str) -> Any:
    return read(run("runs", "show", run_id, "-o", "json"))["status"]


def waiting(run: Run, type_name: str = "sell", **parameters: object) -> str:
    """Start a run and return its id when it waits for a signal."""
    run_id = start(run, type_name, **(parameters or {"order": "lamp"}))
    eventually_sync(lambda: status(run, run_id) == "WAITING", f"{run_id} waits")
    return run_id


def terminal(server: ServerProcess, *arguments: str, **size: int) -> Terminal:
    return Terminal(*arguments, env={"TENURE_TARGET": server.grpc}, **size)


def test_a_tail_follows_the_entries_of_a_run_on_a_terminal_to_its_end(
    run: Run, server: ServerProcess
) -> None:
    run_id = waiting(run)
    with terminal(server, "runs", "tail", run_id, "--all") as shown:
        place = shown.until(
            "TIME", "load", "STEP", "pack#2", "CHILD", "The run is WAITING: signal go"
        )
        assert run("runs", "signal", run_id, "go").exit_code == 0
        shown.until("SIGNAL", "map:pack", "3 of 3 succeeded", "charge", after=place)
        shown.until("The run is COMPLETED")
        assert shown.exit_code() == ExitCode.OK
        lines = [line for line in shown.said.splitlines() if line[:2].isdigit()]
    assert [line.split()[1] for line in lines] == ["1", "2", "3", "4", "5", "6"]
    assert all(len(line) <= 100 for line in lines)


def test_a_tail_ends_without_a_word_when_it_is_interrupted(run: Run, server: ServerProcess) -> None:
    run_id = waiting(run)
    with terminal(server, "runs", "tail", run_id) as shown:
        place = shown.until("The run is WAITING")
        assert shown.interrupt() == ExitCode.INTERRUPTED
        said = shown.said[place:]
    for noise in ("Traceback", "Error", "Interrupted", "Aborted", "KeyboardInterrupt"):
        assert noise not in said
    assert status(run, run_id) == "WAITING"
    assert run("runs", "terminate", run_id).exit_code == 0


def test_a_tail_of_json_lines_has_nothing_else(run: Run) -> None:
    run_id = waiting(run, order="broken")
    run("runs", "signal", run_id, "go")
    tail = run("runs", "tail", run_id, "--all", "-o", "jsonl")
    assert (tail.exit_code, tail.stderr) == (ExitCode.FAILED, "")
    found = [json.loads(line) for line in tail.stdout.splitlines()]
    assert [each["pos"] for each in found] == list(range(1, len(found) + 1))
    assert {each["generation"] for each in found} == {0}
    whole = read(run("runs", "show", run_id, "-o", "json"))["entries"]
    assert [{**each, "generation": 0} for each in whole] == found
    assert found[-1]["error"]["message"] == "no such card"


def test_a_tail_begins_with_as_many_entries_as_are_wanted(run: Run) -> None:
    run_id = waiting(run)
    run("runs", "signal", run_id, "go")
    eventually_sync(lambda: status(run, run_id) == "COMPLETED", "the end")

    def positions(*options: str) -> list[int]:
        tail = run("runs", "tail", run_id, "-o", "jsonl", *options)
        assert tail.exit_code == ExitCode.OK
        return [json.loads(line)["pos"] for line in tail.stdout.splitlines()]

    assert positions() == positions("--all") == [1, 2, 3, 4, 5, 6]
    assert positions("--limit", "2") == [5, 6]
    assert positions("--limit", "0") == []


def test_a_tail_goes_on_when_its_run_begins_anew(run: Run) -> None:
    run_id = start(run, "again", left=2)
    tail = run("runs", "tail", run_id, "--all", "-o", "jsonl")
    found = [json.loads(line) for line in tail.stdout.splitlines()]
    assert tail.exit_code == ExitCode.OK
    # A generation that was over before the next look is not seen any more.
    assert (found[-1]["generation"], found[-1]["pos"]) == (2, 1)


def test_a_run_that_is_waited_for_tells_its_steps_on_a_terminal(
    run: Run, server: ServerProcess
) -> None:
    order = (
        "run",
        "sell",
        '{"order": "lamp"}',
        "--queue",
        QUEUE,
        "--id",
        "followed-lamp",
        "--wait",
    )
    with terminal(server, *order) as shown:
        shown.until("load done after", "pack done after", "pack#2 done after")
        shown.until("signal go")
        assert run("runs", "signal", "external:followed-lamp", "go").exit_code == 0
        shown.until("signal go came", "map:pack: 3 of 3 succeeded", "charge done after")
        shown.until('"lamp charged"')
        assert shown.exit_code() == ExitCode.OK
        assert shown.said.count("load done after") == 1


def test_a_run_that_fails_while_it_is_waited_for_tells_its_last_step(
    run: Run, server: ServerProcess
) -> None:
    order = (
        "run",
        "sell",
        '{"order": "broken"}',
        "--queue",
        QUEUE,
        "--id",
        "followed-broken",
        "--wait",
    )
    with terminal(server, *order) as shown:
        shown.until("load done after")
        run("runs", "signal", "external:followed-broken", "go")
        shown.until("charge failed after", "no such card", "Next: tenure runs show")
        assert shown.exit_code() == ExitCode.FAILED


def test_a_wait_that_times_out_or_is_interrupted_has_its_own_exit_code(
    run: Run, server: ServerProcess
) -> None:
    slow = ("run", "sell", '{"order": "slow"}', "--queue", QUEUE, "--id", "followed-slow")
    run_id = run(*slow).stdout.strip()
    eventually_sync(lambda: status(run, run_id) == "WAITING", "it waits")
    late = run(*slow, "--wait", "--timeout", "100ms")
    assert (late.exit_code, late.stdout) == (ExitCode.TIMED_OUT, "")
    assert "load done after" in late.stderr
    order = ("run", "sell", '{"order": "left"}', "--queue", QUEUE, "--wait")
    with terminal(server, *order) as shown:
        shown.until("load done after")
        assert shown.interrupt() == ExitCode.INTERRUPTED
        assert "The tasks continue." in shown.said


def test_a_wait_without_people_tells_nothing(run: Run) -> None:
    run_id = waiting(run)
    run("runs", "signal", run_id, "go")
    cancelled = run("runs", "cancel", start(run, "sell", order="lamp"), "--wait", "-o", "json")
    assert cancelled.stderr == ""
    assert read(cancelled)["status"] == "CANCELLED"


def test_a_run_is_drawn_with_where_it_waits(run: Run) -> None:
    run_id = waiting(run, "deliver", order="lamp")
    whole = read(run("runs", "show", run_id, "-o", "json"))
    (child,) = whole["open"]
    assert (child["key"], child["type"], child["kind"]) == ("1/ship", "ship", "ACTIVITY")
    shown = run("runs", "show", run_id).stdout
    rows = [line for line in shown.splitlines() if line.startswith("-  ")]
    (branch,) = [line for line in rows if " branch " in line and " 1/ " in line]
    (ship,) = [line for line in rows if "│ ship" in line]
    assert f"waits for task {child['taskId']}" in ship
    (go,) = [line for line in rows if " go " in line]
    assert "SIGNAL" in go
    assert "waits for signal go" in go
    (sleep,) = [line for line in rows if " TIMER " in line]
    assert "until 20" in sleep
    assert rows.index(branch) < rows.index(ship)
    run("runs", "terminate", run_id)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("tail", NOBODY), ExitCode.NOT_FOUND, "List the runs: tenure runs ls"),
        (("tail", "x"), ExitCode.USAGE, "run_id must be a UUID"),
        (("tail", NOBODY, "-o", "json"), ExitCode.USAGE, "Use -o jsonl"),
        (("tail", NOBODY, "--limit", "-1"), ExitCode.USAGE, "--limit"),
    ],
)
def test_a_tail_of_nothing_is_refused(
    run: Run, arguments: tuple[str, ...], code: ExitCode, message: str
) -> None:
    result = run("runs", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_a_tail_of_a_run_that_was_cancelled_or_failed_says_so(run: Run) -> None:
    run_id = waiting(run)
    run("runs", "terminate", run_id)
    tail = run("runs", "tail", run_id)
    assert tail.exit_code == ExitCode.FAILED
    assert tail.stderr == "The run is FAILED: TERMINATED: Terminated by an operator.\n"


FAILURE: Final = ShownFailure("boom", "USER_CODE", type="ValueError")


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("STEP", {"took_ms": 5}, "charge done after 5ms"),
        ("STEP", {"took_ms": 5, "attempts": 2}, "charge done after 5ms, 2 attempts"),
        ("STEP", {"error": FAILURE}, "charge failed after 0ms: ValueError: boom (USER_CODE)"),
        ("RETRY", {"error": FAILURE}, "charge is tried again: ValueError: boom (USER_CODE)"),
        ("TIMER", {}, "charge is over"),
        ("SIGNAL", {}, "signal charge came"),
        ("CANCEL", {}, "a cancel was requested"),
        ("BEGUN", {}, ""),
        ("PATCH", {}, ""),
        (
            "CHILD",
            {"took_ms": 7, "child": ShownChildEnd("id", "pack", "SUCCEEDED")},
            "charge done after 7ms",
        ),
        (
            "GROUP",
            {"group": ShownGroupEnd("id", total=3, succeeded=2, failed=1, cancelled=0)},
            "charge: 2 of 3 succeeded, 1 failed",
        ),
    ],
)
def test_an_entry_is_told_in_a_few_words(kind: str, fields: dict[str, Any], text: str) -> None:
    entry = ShownEntry(pos=1, at="2030-01-01T00:00:00.000Z", kind=kind, key="charge", **fields)
    assert step_text(entry) == text
