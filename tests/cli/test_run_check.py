"""``tenure runs check``: live runs of a real server beside new code."""

from __future__ import annotations

import itertools
import json
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from tenure.testing import JournalChecker
from tests.cli.command_process import CommandProcess
from tests.cli.conftest import Run, invoke, read
from tests.cli.server import ServerProcess
from tests.polling import eventually_sync

CODE: Final = """
import pathlib

from tenure import WorkflowContext, signal, workflow

def note(text: str) -> str:
    with pathlib.Path(__file__).with_name("done").open("a") as file:
        file.write(text)
    return text

def reserve(item: str) -> str:
    return note(item)

def charge(item: str) -> str:
    return note(item)

go = signal("go")

@workflow(name="sell-{queue}")
async def sell(ctx: WorkflowContext, item: str) -> str:
    parcel = await ctx.step(reserve, item)
    await ctx.wait_signal(go)
    return await ctx.step(charge, parcel)

@workflow(name="nap-{queue}")
async def nap(ctx: WorkflowContext) -> str:
    print("napping")
    await ctx.sleep("1h")
    return await ctx.step(reserve, "nap")
"""
_numbers = itertools.count(1)


class Shop:
    """A folder with the code of a worker that runs, and with other versions of it."""

    def __init__(self, folder: Path, queue: str) -> None:
        self.folder = folder
        self.queue = queue
        self.sell, self.nap = f"sell-{queue}", f"nap-{queue}"

    def module(self, before: str = "", after: str = "") -> str:
        """Write a version of the code, and return the name of its module."""
        name = f"shop_{next(_numbers)}"
        code = CODE.replace("{queue}", self.queue).replace(before, after)
        (self.folder / f"{name}.py").write_text(code)
        return name

    @property
    def done(self) -> str:
        """What steps have done."""
        return (self.folder / "done").read_text()


@pytest.fixture
def shop(
    run: Run, server: ServerProcess, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shop:
    """Return a shop with three sales that wait for a signal, and a nap."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Shop(tmp_path, queue)
    options = ("--target", server.grpc, "--queue", queue)
    with CommandProcess(tmp_path, "worker", made.module(), *options) as worker:
        for item in ("lamp", "rug", "cup"):
            run("run", made.sell, json.dumps({"item": item}), "--queue", queue)
        run("run", made.nap, "--queue", queue)
        eventually_sync(lambda: {*statuses(run, queue)} == {"WAITING", "SLEEPING"})
        worker.kill()
    return made


def statuses(run: Run, queue: str) -> list[str]:
    return [
        each["status"] for each in read(run("runs", "ls", "--queue", queue, "-o", "json"))["runs"]
    ]


def check(run: Run, module: str, *types: str, code: int = 0) -> list[dict[str, Any]]:
    """Check the runs of some types and return what was found."""
    groups = []
    for each in types:
        result = run("runs", "check", module, "--type", each, "-o", "json")
        assert result.exit_code == code, result.output
        groups += json.loads(result.stdout)["groups"]
    return groups


def test_code_that_fits_is_safe_and_nothing_is_executed(run: Run, shop: Shop) -> None:
    before = shop.done
    sales, naps = check(run, shop.module(), shop.sell, shop.nap)
    assert (sales["verdict"], sales["runs"], sales["shapes"]) == ("safe", 3, 1)
    assert (naps["verdict"], naps["runs"]) == ("safe", 1)
    text = run("runs", "check", shop.module(), "--type", shop.nap)
    assert text.stdout == f"SAFE {shop.nap}: 1 run in 1 shape\n"
    # What the body prints is no result.
    assert text.stderr == "napping\n1 run in 1 shape checked. All of them fit.\n"
    assert shop.done == before


def test_code_that_would_park_is_found_with_the_line_and_how_many(run: Run, shop: Shop) -> None:
    changed = shop.module("parcel = await ctx.step(reserve", "parcel = await ctx.step(charge")
    (found,) = check(run, changed, shop.sell, code=1)
    assert (found["verdict"], found["runs"], found["position"]) == ("would park", 3, 1)
    line = 1 + CODE.splitlines().index("    parcel = await ctx.step(reserve, item)")
    message = (
        "changed at position 1: at 0 the journal has reserve (step), the code calls charge "
        f"({changed}.py:{line} in sell)"
    )
    assert found["message"] == message
    text = run("runs", "check", changed, "--type", shop.sell)
    assert f"WOULD PARK {shop.sell}: 3 runs in 1 shape: {message}\n" in text.stdout
    assert f"such as run {found['example']}\n" in text.stdout
    assert "3 would park. Put the old calls back" in text.stderr
    lines = run("runs", "check", changed, "--type", shop.sell, "-o", "jsonl").stdout
    assert json.loads(lines)["verdict"] == "would park"
    sampled = run("runs", "check", changed, "--type", shop.sell, "--sample", "1", "-o", "json")
    assert json.loads(sampled.stdout)["runs"] == 1
    each = run("runs", "check", changed, "--type", shop.sell, "--each", "-o", "json")
    assert json.loads(each.stdout)["groups"][0]["runs"] == 3


def test_a_workflow_that_is_gone_is_told_and_is_no_failure(run: Run, shop: Shop) -> None:
    (found,) = check(run, shop.module(shop.nap, "snooze"), shop.nap)
    assert (found["verdict"], found["runs"]) == ("no such type", 1)
    assert found["message"] == f"the code has no workflow {shop.nap}"


def test_finished_runs_are_checked_if_that_is_wanted(run: Run, shop: Shop, queue: str) -> None:
    (found,) = read(run("runs", "ls", "--type", shop.nap, "-o", "json"))["runs"]
    assert run("runs", "terminate", found["runId"]).exit_code == 0
    module = shop.module()
    assert check(run, module, shop.nap) == []
    empty = run("runs", "check", module, "--type", shop.nap)
    assert "0 runs in 0 shapes checked. There are none." in empty.stderr
    options = ("--type", shop.nap, "--finished", "24h", "-o", "json")
    assert read(run("runs", "check", module, *options))["runs"] == 1
    assert queue


def test_a_module_without_workflows_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "only_activities.py").write_text("activities = []\n")
    result = run("runs", "check", "only_activities")
    assert result.exit_code == 2
    assert "only_activities has no workflows." in result.stderr


def test_a_worker_in_code_is_checked_with_its_own_settings(run: Run, shop: Shop) -> None:
    blocking = shop.module('print("napping")', "import time; time.sleep(0)")
    guarded = f"{blocking}_worker"
    (shop.folder / f"{guarded}.py").write_text(
        f"from {blocking} import nap\nfrom tenure import Worker\n"
        'worker = Worker(workflows=[nap], guard="off")\n'
    )
    (found,) = check(run, blocking, shop.nap, code=1)
    assert found["verdict"] == "raises"
    assert "blocks the thread (time.sleep)" in found["message"]
    (found,) = check(run, guarded, shop.nap)
    assert found["verdict"] == "safe"


def test_a_run_is_exported_for_tests_and_as_a_timeline(run: Run, shop: Shop) -> None:
    (*_, found) = read(run("runs", "ls", "--type", shop.sell, "-o", "json"))["runs"]
    file = shop.folder / "sale.json"
    written = run("runs", "export", found["runId"], "--output", str(file))
    assert (written.exit_code, written.stdout) == (0, "")
    assert written.stderr == f"Written to {file}.\n"
    document = json.loads(file.read_text())
    assert (document["version"], document["run"]["input"]) == (1, {"item": "lamp"})
    (entry,) = document["entries"]
    assert (entry["key"], entry["output"]) == ("reserve", "lamp")
    assert json.loads(run("runs", "export", found["runId"]).stdout) == document
    workflows = [vars(import_module(shop.module()))["sell"]]
    assert JournalChecker(shop.folder)("sale.json", workflows) == []
    trace = json.loads(run("runs", "export", found["runId"], "--format", "chrome").stdout)
    names = [each["name"] for each in trace["traceEvents"] if each["ph"] == "X"]
    assert names == ["reserve"]


def test_an_export_that_cannot_be_made_leaves_no_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    nobody = "00000000-0000-7000-8000-000000000000"
    missing = run("runs", "export", nobody, "--output", str(file))
    assert (missing.exit_code, file.exists()) == (3, False)


def test_lint_needs_no_server_and_names_file_and_line(shop: Shop) -> None:
    good = invoke("runs", "lint", shop.module())
    assert (good.exit_code, good.stdout, good.stderr) == (0, "", "0 findings.\n")
    bad = shop.module('print("napping")', "import time; time.time()")
    line = 1 + CODE.splitlines().index('    print("napping")')
    result = invoke("runs", "lint", bad)
    assert result.exit_code == 1
    assert result.stdout == f"{bad}.py:{line} in nap calls time.time: use ctx.now() (clock)\n"
    assert result.stderr == "1 finding.\n"
    (found,) = json.loads(invoke("runs", "lint", bad, "-o", "json").stdout)["findings"]
    assert (found["file"], found["line"], found["workflow"]) == (f"{bad}.py", line, shop.nap)
    missing = invoke("runs", "lint", "no_such_module", "-o", "json")
    assert (missing.exit_code, json.loads(missing.stderr)["error"]) == (2, "usage")


def test_a_server_that_allows_few_lists_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    options = ("--list-rate", "20")
    url = f"sqlite:///{tmp_path}/tenure.db"
    with ServerProcess(url, tmp_path / "log", options=options) as server:
        environment = {"TENURE_TARGET": server.grpc}
        for _ in range(30):
            assert invoke("run", "nobody", env=environment).exit_code == 0
        (tmp_path / "few_lists.py").write_text(
            "from tenure import workflow\n@workflow\nasync def nobody(ctx): pass\n"
        )
        result = invoke("runs", "check", "few_lists", env=environment)
        assert (result.exit_code, result.stdout) == (0, "SAFE nobody: 30 runs in 1 shape\n")
