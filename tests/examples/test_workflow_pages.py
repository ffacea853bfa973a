"""The pages for people from other systems: what they show of ours is a program that runs."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tenure import ApplicationError, RunHandle, TaskCancelled, Workflow, activity
from tenure.sdk.activity.definition import Activity
from tenure.testing import TestEngine
from tests.examples.stage import FOLDER

GUIDE: Final = FOLDER.parent / "docs/guide"
PAGES: Final = ("from-temporal", "from-dbos", "celery-canvas")
OURS: Final = "# Tenure\n"
# What runs of a workflow on these pages return.
ENDS: Final[list[tuple[str, str, list[Any], Any]]] = [
    ("from-temporal", "sell", [{"id": "o-1"}], "receipt of o-1"),
    ("from-temporal", "expense", ["claim"], "nobody answered"),
    ("from-temporal", "close_all", [["cph", "oslo"]], 7),
    ("from-temporal", "watch", ["parcel"], 12),
    ("from-temporal", "sell_safely", [{"id": "o-2", "cents": 990}], "receipt of o-2"),
    ("from-temporal", "sell_safely", [{"id": "o-2", "cents": 9_900_000}], "fraud"),
    ("from-dbos", "sell", ["o-1"], "receipt of o-1"),
    ("from-dbos", "album", [["a", "bb", "ccc"]], 6),
    ("from-dbos", "expense", ["claim"], "nobody answered"),
    ("from-dbos", "climb", [3], None),
    ("from-dbos", "close_all", [["cph", "oslo"]], 7),
    ("celery-canvas", "in_turn", [], "total 8"),
    ("celery-canvas", "side_by_side", [], [0, 2, 4]),
    ("celery-canvas", "together", [], "total 6"),
    ("celery-canvas", "double_all", [5], 20),
    ("celery-canvas", "linked", [2], "total 4"),
    ("celery-canvas", "nested", [20], "total 21"),
]


def blocks(page: str) -> list[str]:
    """Return the Python code of a page."""
    return re.findall(r"```python\n(.*?)```", (GUIDE / f"{page}.md").read_text(), re.DOTALL)


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModuleType]:
    """What a page shows of ours, as one module."""
    name = request.param.replace("-", "_")
    file = tmp_path / f"{name}.py"
    file.write_text("\n\n".join(each for each in blocks(request.param) if each.startswith(OURS)))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


def code_of(program: ModuleType) -> list[object]:
    """Return what a worker of this program has."""
    return [each for each in vars(program).values() if isinstance(each, Workflow | Activity)]


def queues_of(program: ModuleType) -> list[str]:
    """Return the queues that this program names."""
    named = {each.options.queue for each in code_of(program) if isinstance(each, Activity)}
    return sorted({"default", *named} - {""})


@pytest.mark.parametrize("page", PAGES)
def test_every_piece_of_code_is_python(page: str) -> None:
    found = blocks(page)
    for code in found:
        compile(code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert sum(code.startswith(OURS) for code in found) * 2 >= len(found)


@pytest.mark.parametrize(
    ("program", "name", "arguments", "result"),
    ENDS,
    indirect=["program"],
    ids=[f"{page} {name}" for page, name, _, _ in ENDS],
)
async def test_a_workflow_of_the_page_ends_as_it_should(
    engine: TestEngine, program: ModuleType, name: str, arguments: list[Any], result: object
) -> None:
    flow = getattr(program, name)
    async with engine.worker(code_of(program), queues=queues_of(program)):
        types = [program.Order(**each) if isinstance(each, dict) else each for each in arguments]
        run = await engine.start(flow, *types)
        assert await engine.advance_until(run.result()) == result


@pytest.mark.parametrize("program", ["from-temporal", "from-dbos"], indirect=True)
async def test_a_decision_ends_the_expense(engine: TestEngine, program: ModuleType) -> None:
    yes = program.Decision(is_approved=True) if hasattr(program, "Decision") else True
    async with engine.worker([program.expense]):
        run: RunHandle[str] = await engine.start(program.expense, "claim")
        await run.signal(program.decide, yes)
        assert await engine.advance_until(run.result()) == "paid"


@pytest.mark.parametrize("program", ["from-temporal"], indirect=True)
async def test_the_test_of_the_page_passes(engine: TestEngine, program: ModuleType) -> None:
    await program.test_nobody_answers(engine)


@pytest.mark.parametrize("program", ["from-dbos"], indirect=True)
async def test_a_climb_publishes_how_far_it_is(engine: TestEngine, program: ModuleType) -> None:
    async with engine.worker([program.climb]):
        run: RunHandle[None] = await engine.start(program.climb, 3)
        await engine.advance_until(run.result())
        assert await run.state(int) == 3


@pytest.mark.parametrize("program", ["from-dbos"], indirect=True)
async def test_a_cancelled_journey_is_cleaned_up(engine: TestEngine, program: ModuleType) -> None:
    async with engine.worker([program.travel]):
        run: RunHandle[None] = await engine.start(program.travel, "Oslo")
        await engine.advance("1h")
        await run.cancel("ill")
        with pytest.raises(TaskCancelled, match="ill"):
            await engine.advance_until(run.result())
        assert await run.state(str) == "Oslo is cancelled"


@activity(name="add", start_to_close="30s")
async def fail_to_add(x: int, y: int) -> int:
    raise ApplicationError(f"{x} and {y} do not fit", type="NoFit", non_retryable=True)


@pytest.mark.parametrize("program", ["celery-canvas"], indirect=True)
async def test_a_failed_link_is_complained_about(
    engine: TestEngine, program: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "add", fail_to_add)
    async with engine.worker(code_of(program)):
        run: RunHandle[str] = await engine.start(program.linked, 2)
        ended = await engine.advance_until(run.result())
    assert ended == "complained: NoFit: 2 and 2 do not fit"


@pytest.mark.parametrize("program", PAGES, indirect=True)
def test_every_workflow_of_the_page_is_tried(program: ModuleType) -> None:
    tried = {name for page, name, _, _ in ENDS if page.replace("-", "_") == program.__name__}
    known = {each.__name__ for each in vars(program).values() if isinstance(each, Workflow)}
    assert known - tried <= {"close_shop", "travel"}
