"""``tenure worker`` as a process: what it finds in a module, its signals and its exit codes."""

from __future__ import annotations

import itertools
import json
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import tenure
from tenure.cli import module
from tenure.cli.command.worker_process import REGISTERED, SETTINGS, worker
from tenure.sdk.worker.served_queue import declared_queues
from tenure.sdk.worker.worker import WorkerOptions
from tests.cli.command_process import CommandProcess, field
from tests.cli.conftest import Run, invoke, read
from tests.cli.server import ServerProcess
from tests.polling import eventually_sync

TASKS: Final = """
import pathlib
import time

from tenure import activity

@activity(start_to_close="1m")
async def greet(name: str) -> str:
    return f"Hello {name}"

@activity(start_to_close="1m")
def wait(gate: str) -> str:
    while not pathlib.Path(gate).exists():
        time.sleep(0.01)
    return "done"

@activity(start_to_close="1m")
def fall(height: int | str) -> None:
    raise ValueError(f"{height} is too high")
"""
WORKFLOW: Final = """
from tenure import WorkflowContext, workflow

@workflow
async def welcome(ctx: WorkflowContext, name: str) -> str:
    return await ctx.execute(greet, name)
"""
IN_CODE: Final = """
import os
from tenure import Worker, activity

class Shop:
    def __init__(self, word: str) -> None:
        self.word = word

    @activity(start_to_close="1m")
    async def greet(self, name: str) -> str:
        return f"{self.word} {name}"

activities = [Shop("Listed")]

def make() -> list[object]:
    return [Shop("Made")]

def make_nothing() -> int:
    return 3

def break_down() -> None:
    raise KeyError("no settings")
"""
WORKER: Final = """
from app_in_code import Shop
from tenure import Worker

worker = Worker("{target}", queue="{queue}", activities=[Shop("Configured")])
same = worker
"""
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what a command may do to a process of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("")
    (tmp_path / "app" / "tasks.py").write_text(TASKS)
    (tmp_path / "app_in_code.py").write_text(IN_CODE)
    return tmp_path


class Start:
    """Starts workers for a queue of its own, and ends them."""

    def __init__(self, folder: Path, server: ServerProcess, queue: str) -> None:
        self._folder = folder
        self._server = server
        self._queue = queue
        self._started: list[CommandProcess] = []

    def __call__(self, module: str = "app.tasks", *options: str) -> CommandProcess:
        common = ["--target", self._server.grpc, "--queue", self._queue]
        return self.plain(module, *common, *options)

    def plain(self, *arguments: str) -> CommandProcess:
        process = CommandProcess(self._folder, "worker", *arguments)
        self._started.append(process)
        return process

    def close(self) -> None:
        for each in self._started:
            each.__exit__()


@pytest.fixture
def start(folder: Path, server: ServerProcess, queue: str) -> Iterator[Start]:
    made = Start(folder, server, queue)
    yield made
    made.close()


def enqueue(run: Run, queue: str, type: str, value: object, *options: str) -> str:
    arguments = ["--input", json.dumps(value), "--queue", queue, "-o", "json", *options]
    return str(read(run("tasks", "enqueue", type, *arguments))["taskId"])


def ran(run: Run, queue: str, type: str, value: object) -> Any:
    """Enqueue a task, wait for its end and return its output."""
    task_id = enqueue(run, queue, type, value)
    assert run("tasks", "wait", task_id, "--timeout", "20s").exit_code == 0
    return read(run("tasks", "show", task_id, "-o", "json"))["output"]


def until_state(run: Run, task_id: str, state: str) -> None:
    def is_there() -> bool:
        return bool(read(run("tasks", "show", task_id, "-o", "json"))["state"] == state)

    eventually_sync(is_there, f"{task_id} is {state}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_finishes_what_it_runs_and_ends_well(
    start: Start, run: Run, queue: str, folder: Path, number: signal.Signals
) -> None:
    process = start()
    process.until(REGISTERED)
    assert ran(run, queue, "greet", {"name": "Ann"}) == "Hello Ann"
    task_id = enqueue(run, queue, "wait", {"gate": str(folder / "gate")})
    until_state(run, task_id, "RUNNING")
    process.send(number)
    process.until("Draining")
    (folder / "gate").touch()
    assert process.exit_code() == 0, process.said
    until_state(run, task_id, "SUCCEEDED")


def test_a_second_signal_hands_back_what_runs(
    start: Start, run: Run, queue: str, folder: Path
) -> None:
    process = start()
    process.until(REGISTERED)
    task_id = enqueue(run, queue, "wait", {"gate": str(folder / "gate")})
    until_state(run, task_id, "RUNNING")
    process.send(signal.SIGTERM)
    process.until("Draining")
    process.send(signal.SIGINT)
    assert process.exit_code() == 0, process.said
    until_state(run, task_id, "PENDING")


def test_the_options_reach_the_server(start: Start, run: Run, queue: str) -> None:
    process = start(
        "app.tasks",
        *("--name", f"{queue}-one", "--version", "1.2", "--label", "zone=a", "--label", "team=b"),
        *("--max-concurrent", "7", "--mode", "poll", "--lease", "40s", "--max-processes", "2"),
    )
    worker_id = field(process.until(REGISTERED), "id")
    shown = read(run("workers", "show", worker_id, "-o", "json"))
    assert shown["name"] == f"{queue}-one"
    assert shown["version"] == "1.2"
    made_with = f"python/{tenure.__version__}"
    assert shown["labels"] == {"zone": "a", "team": "b", "tenure.sdk": made_with}
    assert shown["maxConcurrent"] == 7
    assert shown["mode"] == "POLL"
    assert shown["lease"]["durationMs"] == 40_000
    assert ran(run, queue, "greet", {"name": "Ann"}) == "Hello Ann"


def test_activities_and_workflows_are_listed_apart(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = fresh(folder, monkeypatch, TASKS + WORKFLOW)
    process = start(name)
    assert process.until("Activities:").split()[1:] == ["fall,", "greet,", "wait"]
    assert process.until("Workflows:").split()[1:] == ["welcome"]


def test_every_queue_that_is_named_is_served(start: Start, run: Run, queue: str) -> None:
    other = f"{queue}-other"
    process = start("app.tasks", "--queue", other, "--name", f"{queue}-one")
    line = process.until(REGISTERED)
    assert field(line, "queue") == f"{queue},{other}"
    ids = field(line, "id").split(",")
    shown = [read(run("workers", "show", each, "-o", "json")) for each in ids]
    assert [each["name"] for each in shown] == [f"{queue}-one@{queue}", f"{queue}-one@{other}"]
    assert ran(run, queue, "greet", {"name": "Ann"}) == "Hello Ann"
    assert ran(run, other, "greet", {"name": "Bob"}) == "Hello Bob"
    process.send(signal.SIGTERM)
    assert process.exit_code() == 0, process.said
    for each in ids:
        assert read(run("workers", "show", each, "-o", "json"))["status"] == "OFFLINE"


def test_a_queue_that_is_named_twice_is_refused(start: Start, queue: str) -> None:
    process = start("app.tasks", "--queue", queue)
    assert process.exit_code() == 2, process.said
    assert f"{queue!r} is there twice" in process.said


def test_all_queues_are_those_that_the_activities_are_declared_for(
    start: Start, run: Run, folder: Path, server: ServerProcess, queue: str
) -> None:
    (folder / "declared.py").write_text(TASKS.replace('"1m")', f'"1m", queue="{queue}")', 1))
    process = start.plain("declared", "--target", server.grpc, "--all-queues")
    assert field(process.until(REGISTERED), "queue") == ",".join(sorted(["default", queue]))
    assert ran(run, queue, "greet", {"name": "Ann"}) == "Hello Ann"


def test_a_queue_that_is_declared_and_not_served_is_a_warning(
    start: Start, folder: Path, queue: str
) -> None:
    (folder / "declared.py").write_text(TASKS.replace('"1m")', '"1m", queue="nobody")', 1))
    process = start("declared")
    warning = process.until("No worker of this process serves queue nobody")
    assert f"--queue {queue} --queue nobody" in warning


def test_every_setting_of_a_worker_has_an_option() -> None:
    names = {each.name for each in worker.params}
    for setting in {"target"} | WorkerOptions.__annotations__.keys():
        assert set(SETTINGS[setting]) <= names, f"give {setting} an option of tenure worker"


CODEC: Final = """
from tenure import Payload

class Reversed:
    def encode(self, payload):
        return Payload(f"reversed:{payload.encoding}", payload.data[::-1])

    def decode(self, payload):
        if not payload.encoding.startswith("reversed:"):
            return payload
        return Payload(payload.encoding.removeprefix("reversed:"), payload.data[::-1])

codec = Reversed()
other = 3
"""


@pytest.mark.parametrize("name", ["codec", "Reversed"])
def test_a_codec_is_named_like_a_module(
    start: Start, run: Run, queue: str, folder: Path, name: str
) -> None:
    (folder / "secret.py").write_text(CODEC)
    start("app.tasks", "--codec", f"secret:{name}").until(REGISTERED)
    task_id = enqueue(run, queue, "greet", {"name": "Ann"})
    assert run("tasks", "wait", task_id, "--timeout", "20s").exit_code == 0
    shown = read(run("tasks", "show", task_id, "-o", "json"))
    assert shown["outputEncoding"] == "reversed:json"


@pytest.mark.parametrize(
    ("codec", "part"),
    [
        ("secret", "Write package.module:name"),
        ("secret:nothing", "has no 'nothing'"),
        ("secret:other", "secret:other is no codec"),
    ],
)
def test_what_is_no_codec_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, codec: str, part: str
) -> None:
    (folder / "secret.py").write_text(CODEC)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    result = invoke("worker", "app.tasks", "--codec", codec)
    assert result.exit_code == 2, result.output
    assert part in result.stderr


def test_a_lease_that_no_server_gives_is_refused(start: Start) -> None:
    process = start("app.tasks", "--lease", "1s")
    assert process.exit_code() == 2
    assert "lease must be between 10s and 10m, not 1s" in process.said


@pytest.mark.parametrize(
    ("module", "word"),
    [
        ("app_in_code", "Listed"),
        ("app_in_code:activities", "Listed"),
        ("app_in_code:make", "Made"),
        ("app.tasks:greet", "Hello"),
    ],
)
def test_activities_are_found_where_they_are_named(
    start: Start, run: Run, queue: str, module: str, word: str
) -> None:
    start(module).until(REGISTERED)
    assert ran(run, queue, "greet", {"name": "Ann"}) == f"{word} Ann"


@pytest.mark.parametrize("name", ["", ":worker"])
def test_a_worker_that_is_made_in_code_is_run_as_it_is(
    start: Start, run: Run, queue: str, folder: Path, server: ServerProcess, name: str
) -> None:
    text = WORKER.format(target=server.grpc, queue=queue)
    (folder / "configured.py").write_text(text)
    process = start.plain(f"configured{name}")
    process.until(REGISTERED)
    assert ran(run, queue, "greet", {"name": "Ann"}) == "Configured Ann"
    process.send(signal.SIGTERM)
    assert process.exit_code() == 0
    refused = start.plain("configured", "--queue", "other")
    assert refused.exit_code() == 2
    assert "--queue has no effect" in refused.said


def test_probes_are_answered(start: Start) -> None:
    process = start("app.tasks", "--health", "127.0.0.1:0")
    line = process.until("Probes:")
    port = line.split("port ")[1].partition(",")[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
        assert answer.status == 200


def test_probes_on_a_port_that_is_taken_are_told(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start("app.tasks", "--health", address)
        assert process.exit_code() == 2
    assert f"Cannot listen on {address}" in process.said


def test_a_server_that_is_not_there_is_told_after_the_wait(start: Start) -> None:
    process = start.plain("app.tasks", "--target", "127.0.0.1:1", "--wait", "500ms")
    assert process.exit_code() == 5, process.said
    assert "No server answers at 127.0.0.1:1" in process.said
    assert "--wait" in process.said


def test_a_namespace_that_does_not_exist_is_told(start: Start) -> None:
    process = start("app.tasks", "--namespace", "nowhere")
    assert process.exit_code() == 3, process.said
    assert "nowhere" in process.said


def test_a_worker_whose_name_is_taken_over_ends_with_a_conflict(start: Start, queue: str) -> None:
    first = start("app.tasks", "--name", f"{queue}-only")
    first.until(REGISTERED)
    start("app.tasks", "--name", f"{queue}-only").until(REGISTERED)
    assert first.exit_code() == 4, first.said
    assert "superseded" in first.said


def test_a_worker_that_is_evicted_ends_with_a_conflict(start: Start, run: Run) -> None:
    process = start()
    worker_id = field(process.until(REGISTERED), "id")
    assert run("workers", "evict", worker_id, "--yes").exit_code == 0
    assert process.exit_code() == 4, process.said
    assert "evicted" in process.said


def test_a_worker_that_an_operator_drains_ends_well(start: Start, run: Run) -> None:
    process = start()
    worker_id = field(process.until(REGISTERED), "id")
    assert run("workers", "drain", worker_id).exit_code == 0
    assert process.exit_code() == 0, process.said


def test_a_quiet_worker_logs_nothing_that_is_no_warning(start: Start) -> None:
    process = start("app.tasks", "--quiet")
    process.until(REGISTERED)
    process.send(signal.SIGTERM)
    assert process.exit_code() == 0
    assert " info " not in process.said


def test_logs_for_programs_are_json_with_the_traceback_as_a_field(
    start: Start, run: Run, queue: str
) -> None:
    process = start("app.tasks", "--log-format", "json")
    process.until("Registered as worker")
    task_id = enqueue(run, queue, "fall", {"height": 3}, "--max-attempts", "1")
    line = json.loads(process.until(f"Task {task_id}"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("timestamp"))
    assert 'raise ValueError(f"{height} is too high")' in line.pop("stack_trace")
    assert line == {
        "level": "error",
        "logger": "tenure.worker",
        "event": f"Task {task_id} (fall) failed in attempt 1, its last: ValueError: 3 is too high",
        "task_id": task_id,
        "task_type": "fall",
        "attempt": 1,
        "error_type": "ValueError",
    }
    process.send(signal.SIGTERM)
    assert process.exit_code() == 0
    assert all(json.loads(each) for each in process.lines)


def test_what_a_task_says_begins_no_line_of_its_own_in_the_log(
    start: Start, run: Run, queue: str
) -> None:
    process = start()
    process.until(REGISTERED)
    enqueue(run, queue, "fall", {"height": "\x1b[2J\n2030-01-01T00:00:00.000Z error forged"})
    process.until("too high")
    assert not [each for each in process.lines if each.startswith("2030")]
    assert "\x1b" not in process.said


def test_a_module_may_set_up_logs_of_its_own(start: Start, folder: Path) -> None:
    setup = "import logging\nlogging.basicConfig(level='INFO', format='MINE %(message)s')\n"
    (folder / "loud.py").write_text(setup + TASKS)
    process = start("loud")
    process.until("MINE Registered as worker")


# -- Modules that cannot be run


def fresh(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Write a module under a name that no other test has imported; return the name."""
    name = f"app_of_a_test_{next(_numbers)}"
    (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return name


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("", 2, "has no activities and no workflows"),
        ("activities = []", 2, "at least one activity"),
        ("activities = [len]", 2, "is not an activity"),
        ("import nothing_of_this_name", 1, "No module named 'nothing_of_this_name'"),
        ("raise ValueError('no settings')", 1, "ValueError: no settings"),
        ("def", 1, "SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_run_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int, part: str
) -> None:
    name = fresh(folder, monkeypatch, text)
    result = invoke("worker", name)
    assert result.exit_code == code, result.output
    assert part in result.stderr
    assert "Next:" in result.stderr or code == 2


WRONG_OPTION: Final = """from tenure import activity
@activity(start_to_close="1m", heartbeat="5s")
async def greet() -> None: ...
"""


@pytest.mark.parametrize("text", [WRONG_OPTION, "import json\njson.loads('{')\n"])
def test_the_line_of_a_mistake_in_a_module_is_one_of_the_users_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    name = fresh(folder, monkeypatch, text)
    result = invoke("worker", name)
    assert f"{name}.py, line 2)" in result.stderr


def test_a_module_with_two_workers_asks_which_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = IN_CODE + "one = Worker(activities=activities)\ntwo = Worker(activities=activities)\n"
    name = fresh(folder, monkeypatch, text)
    result = invoke("worker", name)
    assert result.exit_code == 2
    assert f"{name}:one" in result.stderr
    assert f"{name}:two" in result.stderr


@pytest.mark.parametrize(
    ("suffix", "code", "part"),
    [
        (":nothing", 2, "has no 'nothing'"),
        (":make_nothing", 2, "returned int"),
        (":break_down", 1, "KeyError"),
    ],
)
def test_a_name_that_cannot_be_run_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, code: int, part: str
) -> None:
    name = fresh(folder, monkeypatch, IN_CODE)
    result = invoke("worker", name + suffix)
    assert result.exit_code == code, result.output
    assert part in result.stderr


@pytest.mark.parametrize(
    ("module", "part"),
    [
        ("no_module_of_this_name", "There is no module"),
        ("no_package_of_this_name.tasks", "There is no module"),
        ("app/tasks.py", "Name the module: app.tasks"),
        ("app tasks", "is not a module"),
        ("app.tasks:a.b", "is not a module"),
    ],
)
def test_what_is_no_module_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, part: str
) -> None:
    monkeypatch.chdir(folder)
    result = invoke("worker", module)
    assert result.exit_code == 2, result.output
    assert part in result.stderr


FLOWS: Final = """
from tenure import WorkflowContext, activity, workflow

@workflow(queue="shop")
async def sell(ctx: WorkflowContext) -> None: ...

@activity(start_to_close="1m")
def charge() -> None: ...

def make():
    return [sell]
"""


@pytest.mark.parametrize(
    ("more", "name", "found"),
    [
        ("", "", {"sell", "charge"}),
        ("activities = []", "", {"sell"}),
        ("activities = [sell, charge]", "", {"sell", "charge"}),
        ("", ":sell", {"sell"}),
        ("", ":make", {"sell"}),
    ],
)
def test_the_workflows_of_a_module_are_run_beside_its_activities(
    folder: Path, monkeypatch: pytest.MonkeyPatch, more: str, name: str, found: set[str]
) -> None:
    loaded: Any = module.load(fresh(folder, monkeypatch, FLOWS + more) + name)
    assert {each.name for each in loaded} == found
    assert declared_queues(loaded) == ["default", "shop"]
