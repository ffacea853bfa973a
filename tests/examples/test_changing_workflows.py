"""The guide to changes of workflows: what it says is what the code does."""

from __future__ import annotations

import ast
import asyncio
import re
from typing import Any, Final

import pytest

from tenure import RunStatus, Workflow, WorkflowContext, signal, step, workflow
from tenure.cli.client.client import ServerClient
from tenure.cli.client.journal_client import LIVE
from tenure.cli.command.run_check import check as check_command
from tenure.sdk.body_lint import rule
from tenure.sdk.body_lint.rule import Rule
from tenure.sdk.journal_check.checker import RunChecker
from tenure.sdk.journal_check.finding import Verdict
from tenure.sdk.journal_check.summary import FoundGroup
from tenure.testing import TestEngine
from tests.examples.stage import FOLDER

PAGE: Final = (FOLDER.parent / "docs/guide/changing-workflows.md").read_text()
LINE: Final = 41
PARKED: Final = "| the code was | and is now | `park_error` |"


def charge() -> int:
    return 1


def check_fraud() -> int:
    return 2


def pack() -> int:
    return 3


def sleep() -> None:
    return None


@step(name="price")
def text() -> str:
    return "7 EUR"


@step(name="price")
def number() -> int:
    return 7


NAMES: Final = {
    **{each.__name__: each for each in (charge, check_fraud, pack, sleep, text, number)},
    "go": signal("go"),
    "stop": signal("stop"),
}


def rows(head: str) -> list[list[str]]:
    """Return the cells of the table with a head."""
    lines = PAGE.partition(head)[2].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]


def sell(body: str, **options: Any) -> Workflow[..., Any]:
    """Return a workflow whose code stands at the line that the guide names."""
    head = "\n" * (LINE - 2) + "async def sell(ctx):\n"
    code = f"{head}    {body}; await ctx.wait_signal(stop)\n"
    scope: dict[str, Any] = dict(NAMES)
    exec(compile(code, "orders.py", "exec"), scope)  # noqa: S102 (ours)
    made: Workflow[..., Any] = workflow(**options)(scope["sell"])
    return made


def found_by_check(target: str, changed: Workflow[..., Any]) -> list[FoundGroup]:
    """Check the live runs of a server as the command does."""
    client, checker = ServerClient([target], "default"), RunChecker([changed])
    try:
        for status in LIVE:
            for run in client.journals.list_runs(status):
                checker.check(client.journals, run)
    finally:
        client.close()
    return checker.summary.report(is_whole=True).groups


@pytest.mark.parametrize(("before", "after", "message"), rows(PARKED))
async def test_a_changed_workflow_parks_as_the_guide_says_and_the_check_foretells_it(
    engine: TestEngine, before: str, after: str, message: str
) -> None:
    old, new = sell(before), sell(after)
    async with engine.worker([old]):
        run = await engine.start(old)
        await engine.advance("2m")
    (good,) = await asyncio.to_thread(found_by_check, engine.target, old)
    assert good.verdict is Verdict.SAFE
    (bad,) = await asyncio.to_thread(found_by_check, engine.target, new)
    assert (bad.verdict, bad.message) == (Verdict.PARKS, message)
    async with engine.worker([new]):
        await run.signal("go")
        await engine.advance("1m")
        info = await run.describe()
        assert info.status is RunStatus.PARKED
        assert info.park_error is not None
        assert info.park_error.message == message
    # A rollback heals it, without anybody's help.
    async with engine.worker([old]):
        await run.signal("stop")
        await engine.advance_until(run.result())


def test_the_code_of_the_page_is_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "changing-workflows.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_page_names_every_option_of_the_check() -> None:
    named = {cells[0].split()[0] for cells in rows("| option | |")}
    shared = {"--target", "--api-key", "--namespace", "--verbose", "--tls"}
    shared |= {"--tls-ca", "--tls-cert", "--tls-key", "--format"}
    known = {name for each in check_command.params for name in each.opts}
    assert named - {"-o"} == {each for each in known if each.startswith("--")} - shared


def test_the_page_names_every_verdict_and_every_rule() -> None:
    said = {cells[0]: cells[-1] for cells in rows("| it says | what it means | exit code |")}
    assert said == {str(each): str(int(each.is_broken)) for each in Verdict}
    rules = {value.name for value in vars(rule).values() if isinstance(value, Rule)}
    assert {cells[0] for cells in rows("| rule | what is found |")} == rules


def blocks(title: str) -> list[str]:
    """Return the Python code under a heading."""
    part = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", part, re.DOTALL)


def defined(code: str, done: list[str]) -> dict[str, Any]:
    """Run code of the page; its steps note their names."""

    def made(name: str) -> Any:
        def note(what: str) -> str:
            done.append(name)
            return what

        return step(name=name)(note)

    steps = {name: made(name) for name in ("charge", "check_fraud", "greet", "send_news")}
    scope = {"workflow": workflow, "WorkflowContext": WorkflowContext, **steps}
    exec(compile(code, "orders.py", "exec"), scope)  # noqa: S102 (ours)
    return scope


async def test_a_patch_keeps_old_runs_on_the_old_way_and_can_be_retired(engine: TestEngine) -> None:
    (code, _) = blocks("Patches")
    done: list[str] = []
    patch = '    if ctx.patched("fraud-check"):\n        await ctx.step(check_fraud, item)\n'
    assert patch in code
    before = defined(code.replace(patch, ""), done)["sell"]
    patched = defined(code, done)["sell"]
    after = defined(code.replace(patch, "    await ctx.step(check_fraud, item)\n"), done)["sell"]
    async with engine.worker([before]):
        old = await engine.start(before, "lamp")
        await engine.advance("1m")
    async with engine.worker([patched]):
        new = await engine.start(patched, "rug")
        await engine.advance("1m")
    assert done == ["charge", "check_fraud", "charge"]
    # The old run needs the code from before the patch, and would park without it.
    assert {
        each.verdict for each in await asyncio.to_thread(found_by_check, engine.target, after)
    } == {Verdict.SAFE, Verdict.PARKS}
    async with engine.worker([patched]):
        assert await engine.advance_until(old.result()) == "lamp"
        again = await engine.start(patched, "cup")
        await engine.advance("1m")
    # Now nobody needs it.
    (good,) = await asyncio.to_thread(found_by_check, engine.target, after)
    assert good.verdict is Verdict.SAFE
    async with engine.worker([after]):
        assert await engine.advance_until(new.result()) == "rug"
        assert await engine.advance_until(again.result()) == "cup"
    assert done == ["charge", *("check_fraud", "charge") * 2]


async def test_a_tolerant_workflow_takes_added_and_removed_steps(engine: TestEngine) -> None:
    (code,) = blocks("Tolerating changes")
    done: list[str] = []
    greet = "    await ctx.step(greet, reader)\n"
    old = defined(code, done)["newsletter"]
    changed = defined(code.replace(greet, "    await ctx.step(check_fraud, reader)\n"), done)
    async with engine.worker([old]):
        run = await engine.start(old, "ann")
        await engine.advance("1m")
    async with engine.worker([changed["newsletter"]]):
        await engine.advance_until(run.result())
    assert done == ["greet", "check_fraud", "send_news"]
