"""The guide to workflows: its program, its commands and its messages are the real ones."""

from __future__ import annotations

import ast
import asyncio
import gc
import re
import shlex
import subprocess
import textwrap
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest

from examples.drip_campaign import drip
from examples.first_workflow import sell
from tenure import RunStatus, SyncClient, TaskCancelled, TaskFailed, Workflow, signal, workflow
from tenure.testing import TestEngine, assert_survives
from tests.bounds import COMMAND_S
from tests.cli.command_process import CommandProcess, field
from tests.cli.server import CLI
from tests.examples.stage import FOLDER, Stage
from tests.polling import eventually_sync

PAGE: Final = (FOLDER.parent / "docs/guide/workflows.md").read_text()
LINE: Final = 41
NAMES: Final = {
    "asyncio": asyncio,
    "subprocess": subprocess,
    "time": time,
    "urllib": urllib,
    "URL": "http://127.0.0.1:9/",
    "HOST": "127.0.0.1",
    "work": time.time,
}


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def _rows(head: str) -> list[tuple[str, str]]:
    """Return the two columns of the table with a head."""
    lines = PAGE.partition(head)[2].split("\n\n")[0].splitlines()[2:]
    return [(cells[1].strip(), cells[2].strip()) for cells in (line.split("|") for line in lines)]


def _workflow(name: str, body: str, **names: Any) -> Workflow[..., Any]:
    """Return a workflow whose code begins at the line that the guide names."""
    head = "\n" * (LINE - 2) + f"async def {name}(ctx):\n"
    scope: dict[str, Any] = {**NAMES, **names}
    exec(compile(f"{head}    {body}\n", "orders.py", "exec"), scope)  # noqa: S102 (ours)
    made: Workflow[..., Any] = workflow(scope[name])
    return made


def charge() -> int:
    return 1


def check_fraud() -> int:
    return 2


def test_the_guide_shows_the_first_workflow_as_it_is() -> None:
    _, _, code = (FOLDER / "first_workflow.py").read_text().partition('"""\n\n')
    assert _blocks("python")[0] == code


def test_the_code_of_the_page_is_python() -> None:
    for block in _blocks("python"):
        compile(block, "workflows.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_commands_of_the_guide_print_what_it_says_and_the_run_survives_its_worker(
    folder: Path,
) -> None:
    """Ports of their own, and a shorter sleep, are all that is changed."""
    said = _blocks("console")[0].splitlines()
    commands = [line[2:].partition("  ")[0] for line in said if line.startswith("$ ")]
    assert commands == ["tenure dev", "tenure worker first_workflow", "python first_workflow.py"]
    file = folder / "first_workflow.py"
    file.write_text(file.read_text().replace('"10s"', '"3s"'))
    with CommandProcess(folder, "dev", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0") as dev:
        target = field(dev.until("Tenure runs for development"), "grpc")
        stage = Stage(folder, target)
        with SyncClient(target) as client, stage.worker("first_workflow") as first:
            with stage.script("first_workflow.py") as script:
                eventually_sync(lambda: _is_asleep(client))
                first.kill()
                with stage.worker("first_workflow") as second:
                    printed = script.end()
                    assert "shipping one lamp" in second.said
                    assert "reserving" not in second.said
            assert "reserving a lamp" in first.said
    assert printed == [line for line in said if not line.startswith("$ ")]


def test_the_commands_of_the_guide_start_show_signal_and_cancel_runs(stage: Stage) -> None:
    said = [line[2:].partition("  ")[0] for line in _blocks("console")[1].splitlines()]
    start, ls, show, tail, explain, signal_run, cancel = [shlex.split(line)[1:] for line in said]
    file = stage.folder / "first_workflow.py"
    file.write_text(file.read_text().replace('"10s"', '"1ms"'))
    with stage.worker("first_workflow"), SyncClient(stage.target) as client:
        assert "one lamp is on its way" in _tenure(stage, *start)
        (ended, *_) = client.list_runs(type="sell", status="completed")
        assert ended.run_id in _tenure(stage, *ls, "-o", "json")
        for command in (show, tail):
            named = [ended.run_id if each == "RUN" else each for each in command]
            assert "reserve" in _tenure(stage, *named)
        waiting = client.start_named("nobody", queue="nobody")
        explain, signal_run, cancel = (
            [waiting.run_id if each == "RUN" else each for each in command]
            for command in (explain, signal_run, cancel)
        )
        assert "No worker serves queue nobody" in _tenure(stage, *explain)
        for command in (signal_run, cancel):
            _tenure(stage, *command)
        info = waiting.describe()
        assert (info.status, info.cancel_reason) == (RunStatus.CANCELLED, "sold out")
        assert info.entry_count == 1


def _tenure(stage: Stage, *arguments: str) -> str:
    """Run a command of the guide to its good end; return what it printed."""
    ended = subprocess.run(
        [*CLI, *arguments, "--target", stage.target],
        check=True,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    return ended.stdout


def _is_asleep(client: SyncClient) -> bool:
    return any(each.status is RunStatus.SLEEPING for each in client.list_runs())


@pytest.mark.parametrize(
    ("code", "message"), _rows("| code in a workflow | `NotDurable` |"), ids=lambda each: each[:40]
)
# A socket that may not connect is left to the garbage collector by Python's library.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_what_is_refused_is_said_as_the_guide_says(
    engine: TestEngine, code: str, message: str
) -> None:
    foreign = asyncio.get_running_loop().create_future()
    ship = _workflow("ship", code.strip("`"), foreign_future=foreign)
    async with engine.worker([ship]):
        run = await engine.start(ship)
        with pytest.raises(TaskFailed) as caught:
            await engine.advance_until(run.result())
    assert caught.value.error is not None
    assert caught.value.error.type == "NotDurable"
    assert f"`{caught.value.error.message}`" == message
    gc.collect()


CHANGES: Final = {
    "another step in the place of `charge`": "await ctx.step(check_fraud); await ctx.sleep('1h')",
    "`charge` is gone": "await ctx.wait_signal(go)",
}


@pytest.mark.parametrize(
    ("change", "message"), _rows("| change | `park_error` |"), ids=lambda each: each[:40]
)
async def test_changed_code_parks_the_run_as_the_guide_says(
    engine: TestEngine, change: str, message: str
) -> None:
    names = {"charge": charge, "check_fraud": check_fraud, "go": signal("go")}
    old = _workflow("sell", "await ctx.step(charge); await ctx.sleep('1h')", **names)
    async with engine.worker([old]):
        run = await engine.start(old)
        await engine.advance("1m")
    async with engine.worker([_workflow("sell", CHANGES[change], **names)]):
        await engine.advance("1h")
        info = await run.describe()
        assert info.status is RunStatus.PARKED
        assert info.park_error is not None
        assert f"`{info.park_error.message}`" == message
    async with engine.worker([old]):
        await run.resume()
        await engine.advance_until(run.result())


def _part(title: str) -> list[str]:
    """Return the Python code under a heading."""
    part = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", part, re.DOTALL)


async def test_the_tests_of_the_guide_pass(engine: TestEngine) -> None:
    scope: dict[str, Any] = {"drip": drip, "sell": sell, "assert_survives": assert_survives}
    for code in _part("Testing"):
        exec(compile(code, "workflows.md", "exec"), scope)  # noqa: S102 (ours)
    tests = [value for name, value in scope.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        await test(engine)


async def test_a_cancelled_workflow_cleans_up_as_the_guide_shows(engine: TestEngine) -> None:
    done: list[str] = []

    def ship(parcel: str) -> None:
        done.append(f"shipped {parcel}")

    def release(parcel: str) -> None:
        done.append(f"released {parcel}")

    body = textwrap.indent(_part("Cancelling")[0], "    ").strip()
    names = {"parcel": "one lamp", "ship": ship, "release": release}
    cancelled = _workflow("sell", body, **names)
    async with engine.worker([cancelled]):
        run = await engine.start(cancelled)
        await engine.advance("1h")
        await run.cancel("sold out")
        with pytest.raises(TaskCancelled, match="sold out"):
            await engine.advance_until(run.result())
    assert done == ["released one lamp"]


async def test_prices_are_gathered_as_the_guide_shows(engine: TestEngine) -> None:
    def ask_price(shop: str) -> int:
        return len(shop)

    (code,) = _part("The one rule")
    names = {"shops": ["a", "bb"], "ask_price": ask_price}
    gathered = _workflow("sell", f"{code.strip()}; return prices", **names)
    async with engine.worker([gathered]):
        run = await engine.start(gathered)
        assert await engine.advance_until(run.result()) == [1, 2]
