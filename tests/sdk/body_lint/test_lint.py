"""What is not the same each time is found in the source of workflows, with its line."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from typing import Final

import pytest

from tenure import Workflow
from tenure.sdk.body_lint.lint import LintFinding, lint

HEAD: Final = """\
from __future__ import annotations
import asyncio
import os
import random
import time as clock
import uuid
from collections.abc import Set
from datetime import date, datetime as moment
from pathlib import Path
from time import sleep
from tenure import SyncWorkflowContext, WorkflowContext, workflow

seen = []
total = 0
def fetch(url: str = "") -> str: return clock.ctime()

"""


def find(folder: Path, code: str) -> list[LintFinding]:
    """Lint the workflows of a module with this code."""
    file = folder / "orders.py"
    file.write_text(HEAD + textwrap.dedent(code))
    spec = importlib.util.spec_from_file_location("orders", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lint([each for each in vars(module).values() if isinstance(each, Workflow)])


def in_body(folder: Path, statement: str, parameters: str = "") -> list[tuple[int, str, str]]:
    """Lint a workflow of one statement; return line in the body, rule, and what was found."""
    head = f"@workflow\nasync def ship(ctx: WorkflowContext{parameters}) -> None:\n"
    found = find(folder, head + textwrap.indent(textwrap.dedent(statement), "    "))
    before = HEAD.count("\n") + 2
    return [(each.line - before, each.rule, each.what) for each in found]


@pytest.mark.parametrize(
    ("statement", "rule", "what"),
    [
        ("clock.time()", "clock", "calls time.time"),
        ("moment.now()", "clock", "calls datetime.datetime.now"),
        ("date.today()", "clock", "calls datetime.date.today"),
        ("from time import monotonic as m; m()", "clock", "calls time.monotonic"),
        ("random.choice([1, 2])", "chance", "calls random.choice"),
        ("random.Random().random()", "chance", "calls random.Random without a seed"),
        ("uuid.uuid4()", "chance", "calls uuid.uuid4"),
        ("os.urandom(8)", "chance", "calls os.urandom"),
        ("import secrets; secrets.token_hex()", "chance", "calls secrets.token_hex"),
        ("sleep(1)", "blocking", "calls time.sleep"),
        ("open('file')", "blocking", "calls open"),
        ("Path('file').read_text()", "blocking", "calls Path.read_text"),
        ("import subprocess; subprocess.run(['ls'])", "blocking", "calls subprocess.run"),
        ("import requests; requests.get('')", "blocking", "calls requests.get"),
        ("import urllib.request; urllib.request.urlopen('')", "blocking", "urllib.request.urlopen"),
        ("await asyncio.to_thread(fetch)", "outside", "calls asyncio.to_thread"),
        ("os.environ['HOME']", "environment", "reads os.environ"),
        ("os.getenv('HOME')", "environment", "calls os.getenv"),
        ("for x in {'a', 'b'}: pass", "set-order", "iterates over a set"),
        ("names = set(fetch.__name__)\nfor x in names: pass", "set-order", "iterates over a set"),
        ("[x for x in {'a'} | {'b'}]", "set-order", "iterates over a set"),
        ("', '.join({'a', 'b'})", "set-order", "iterates over a set"),
        ("list(frozenset(['a']))", "set-order", "iterates over a set"),
        ("print(*{'a', 'b'})", "set-order", "iterates over a set"),
        (
            "for x in asyncio.as_completed([asyncio.sleep(1)]): pass",
            "asyncio",
            "passes coroutines to asyncio.as_completed",
        ),
        (
            "await asyncio.wait_for(asyncio.sleep(1), 2)",
            "asyncio",
            "passes a coroutine to asyncio.wait_for",
        ),
        ("global total; total = 1", "global", "changes the global total"),
        ("seen.append(1)", "global", "changes the global seen"),
        ("seen[0] = 1", "global", "changes the global seen"),
        ("del seen[0]", "global", "changes the global seen"),
    ],
    ids=lambda each: each[:30],
)
def test_what_is_not_the_same_each_time_is_found(
    tmp_path: Path, statement: str, rule: str, what: str
) -> None:
    found = in_body(tmp_path, statement)
    assert found, statement
    line, found_rule, found_what = found[-1]
    assert (line, found_rule) == (statement.count("\n") + 1, rule)
    assert what in found_what


@pytest.mark.parametrize(
    "statement",
    [
        "ctx.now(); ctx.random().random(); ctx.uuid4(); await ctx.sleep('1h')",
        "await ctx.step(fetch)",
        "await ctx.step(lambda: clock.time())",
        "def inner() -> float: return clock.time()\nawait ctx.step(inner)",
        "for x in sorted({'a', 'b'}): pass",
        "len({'a'}); sum(len(x) for x in {'a'}); 'a' in {'a'}; {x for x in {'a'}}",
        "for x in {1, 2}: pass",
        "steps = [ctx.step(fetch)]\nfor x in asyncio.as_completed(steps): pass",
        "for x in asyncio.as_completed([ctx.step(fetch)]): pass",
        "await asyncio.wait_for(ctx.step(fetch), 2)",
        "await asyncio.gather(ctx.step(fetch), ctx.step(fetch))",
        "seen = []; seen.append(1)",
        "random.Random(7).random()",
        "clock = ctx; clock.now()",
        "uuid.uuid5(uuid.NAMESPACE_DNS, 'a')",
        "open = ctx.step; open(fetch)",
    ],
    ids=lambda each: each[:30],
)
def test_what_is_the_same_each_time_is_not(tmp_path: Path, statement: str) -> None:
    assert in_body(tmp_path, statement) == []


def test_a_parameter_that_is_a_set_of_texts_is_known_by_its_type(tmp_path: Path) -> None:
    loop = "for name in names: pass"
    for kind in ("set[str]", "frozenset[str]", "set"):
        assert in_body(tmp_path, loop, f", names: {kind}"), kind
    for kind in ("set[int]", "list[str]"):
        assert in_body(tmp_path, loop, f", names: {kind}") == [], kind


HELPERS: Final = """
    @workflow
    async def ship(ctx: WorkflowContext) -> None:
        await price(ctx)
        await ctx.step(fetch)

    @workflow
    async def sell(ctx: WorkflowContext) -> None:
        await price(ctx)

    async def price(ctx: WorkflowContext) -> float:
        await price(ctx)
        return rounded()

    def rounded() -> float:
        return clock.time()

    def unused() -> float:
        return clock.time()
"""


def test_helpers_of_the_file_are_followed_and_told_once(tmp_path: Path) -> None:
    (found,) = find(tmp_path, HELPERS)
    assert (found.function, found.rule, found.workflow) == ("rounded", "clock", "sell")
    place = f"{tmp_path}/orders.py:{found.line} in rounded"
    assert str(found) == f"{place} calls time.time: use ctx.now() (clock)"


PLAIN: Final = """
    @workflow
    def ship(ctx: SyncWorkflowContext) -> None:
        sleep(1)
        begun = ctx.begin(fetch, open("file").read())
        ctx.step(lambda: clock.time())
        ctx.begin(lambda: clock.time())
        begun.result()
"""


def test_a_plain_function_is_told_what_to_write_without_await(tmp_path: Path) -> None:
    sleeps, opens = find(tmp_path, PLAIN)
    assert (sleeps.what, sleeps.instead) == ("calls time.sleep", "ctx.sleep(…)")
    assert (opens.what, opens.instead) == ("calls open", "put it into a step: ctx.step(…)")


def test_a_comment_silences_its_line(tmp_path: Path) -> None:
    statement = "clock.time()  # tenure: ok (shown to people only)\nclock.time()"
    assert [line for line, _, _ in in_body(tmp_path, statement)] == [2]


def test_the_file_is_named_from_the_folder_that_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = find(tmp_path, HELPERS)
    assert found.file == "orders.py"


def test_code_without_a_file_is_left_out() -> None:
    scope: dict[str, Workflow[..., None]] = {}
    code = "from tenure import workflow\n@workflow\nasync def made(ctx): import time; time.time()"
    exec(code, scope)  # noqa: S102 (ours)
    assert lint([scope["made"]]) == []
