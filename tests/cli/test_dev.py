"""``tenure dev`` as a process: server and worker in one, reload, and one Ctrl-C for all."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from click.testing import Result

from tenure.cli.command.worker_process import REGISTERED
from tenure.cli.dev import file_watch
from tests.cli.command_process import CommandProcess, field
from tests.cli.conftest import invoke, read
from tests.polling import eventually_sync

RUNS: Final = "Tenure runs for development:"
TASKS: Final = """
import pathlib
import time

from tenure import activity
{imports}

@activity(start_to_close="1m")
async def greet(name: str) -> str:
    return f"{word} {{name}}"

@activity(start_to_close="1m")
def wait(gate: str) -> str:
    pathlib.Path(gate).with_suffix(".open").touch()
    while not pathlib.Path(gate).exists():
        time.sleep(0.01)
    return "done"

@activity(start_to_close="1m")
def fall(height: int) -> None:
    raise ValueError(f"{{height}} is too high")
"""


def write(folder: Path, word: str, imports: str = "") -> None:
    """Write the module of the worker, as an editor does."""
    text = TASKS.format(word=word, imports=imports)
    (folder / "new").write_text(text)
    (folder / "new").replace(folder / "tasks.py")


class Dev:
    """The command with free ports, and tasks for its worker."""

    def __init__(self, folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        ports = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        self.process = CommandProcess(folder, "dev", *arguments, *ports, env=env)
        self._env = env
        line = self.process.until(RUNS)
        self.http, self.grpc = field(line, "http"), field(line, "grpc")

    def invoke(self, *arguments: str) -> Result:
        """Run another command for its server, in the same environment."""
        return invoke(*arguments, "--target", self.grpc, env=self._env)

    def enqueue(self, type: str, value: object, *options: str) -> str:
        arguments = ["--input", json.dumps(value), "-o", "json", *options]
        return str(read(self.invoke("tasks", "enqueue", type, *arguments))["taskId"])

    def result(self, type: str, value: object, *options: str) -> object:
        """Enqueue a task, wait for its end and return its output."""
        task_id = self.enqueue(type, value, *options)
        waited = self.invoke("tasks", "wait", task_id, "--timeout", "20s")
        assert waited.exit_code == 0, waited.output
        shown = self.invoke("tasks", "show", task_id, "-o", "json")
        found: dict[str, object] = read(shown)
        return found["output"]

    def is_server_gone(self) -> bool:
        host, _, port = self.grpc.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) != 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    write(made, "Hello")
    return made


@pytest.fixture
def dev(folder: Path) -> Iterator[Dev]:
    made = Dev(folder, "tasks", "--drain-deadline", "20s")
    with made.process:
        yield made


def test_one_command_runs_all_and_one_signal_ends_it(dev: Dev) -> None:
    assert dev.result("greet", {"name": "Ann"}) == "Hello Ann"
    with urllib.request.urlopen(f"http://{dev.http}/healthz", timeout=10) as answer:
        assert answer.status == 200
    dev.process.send(signal.SIGINT)
    assert dev.process.exit_code() == 0, dev.process.said
    assert dev.is_server_gone()
    assert "Stopped." in dev.process.said


def test_a_change_of_a_file_brings_new_code(dev: Dev, folder: Path) -> None:
    assert dev.result("greet", {"name": "Ann"}) == "Hello Ann"
    write(folder, "Goodbye")
    dev.process.until("tasks.py changed")
    dev.process.until(REGISTERED, count=2)
    assert dev.result("greet", {"name": "Ann"}) == "Goodbye Ann"


def test_a_change_of_another_file_brings_new_code_as_well(dev: Dev, folder: Path) -> None:
    dev.process.until(REGISTERED)
    (folder / "part").mkdir()
    (folder / "part" / "words.py").write_text("WORD = 'Hi'\n")
    dev.process.until("words.py changed")
    dev.process.until(REGISTERED, count=2)


def declare(folder: Path, queue: str) -> None:
    """Declare the first activity of the module for a queue."""
    module = folder / "tasks.py"
    module.write_text(module.read_text().replace('"1m")', f'"1m", queue="{queue}")', 1))


def test_every_queue_that_an_activity_is_declared_for_is_served(folder: Path) -> None:
    declare(folder, "reports")
    dev = Dev(folder, "tasks")
    with dev.process:
        assert field(dev.process.until(REGISTERED), "queue") == "default,reports"
        assert dev.result("greet", {"name": "Ann"}, "--queue", "reports") == "Hello Ann"
        assert dev.result("greet", {"name": "Bob"}) == "Hello Bob"
        assert "warning" not in dev.process.said


def test_a_declared_queue_that_is_not_served_is_a_warning(folder: Path) -> None:
    declare(folder, "reports")
    dev = Dev(folder, "tasks", "--queue", "default", "--queue", "mail")
    with dev.process:
        line = dev.process.until("No worker of this process serves queue reports")
        assert "--queue default --queue mail --queue reports" in line
        assert field(dev.process.until(REGISTERED), "queue") == "default,mail"


CREATED: Final = "Namespace acme/default was created."


def test_the_namespace_of_the_environment_is_created_and_used(folder: Path) -> None:
    store = ("--store", f"sqlite:///{folder / 'kept.db'}")
    env = {"TENURE_NAMESPACE": "acme"}
    dev = Dev(folder, "tasks", *store, env=env)
    with dev.process:
        dev.process.until(CREATED)
        assert f"tenure tasks ls --target {dev.grpc} --namespace acme" in dev.process.said
        dev.process.until(REGISTERED)
        assert dev.result("greet", {"name": "Ann"}) == "Hello Ann"
    again = Dev(folder, "tasks", *store, env=env)
    with again.process:
        again.process.until(REGISTERED)
        assert CREATED not in again.process.said


def test_a_namespace_that_cannot_be_created_ends_the_command(folder: Path) -> None:
    dev = Dev(folder, "--namespace", "a b")
    with dev.process:
        assert dev.process.exit_code() == 2, dev.process.said
        assert dev.is_server_gone()


def test_a_key_that_may_not_create_namespaces_uses_those_that_exist(folder: Path) -> None:
    url = f"sqlite:///{folder / 'kept.db'}"
    admin = invoke("keys", "create", "--role", "admin", "--store", url).stdout.strip()
    keys = {"admin": admin}
    for role in ("admin", "worker"):
        env = {"TENURE_NAMESPACE": "acme", "TENURE_API_KEY": keys[role]}
        dev = Dev(folder, "tasks", "--store", url, env=env)
        with dev.process:
            dev.process.until(REGISTERED)
            assert (CREATED in dev.process.said) == (role == "admin")
            keys["worker"] = dev.invoke("keys", "create", "--role", "worker").stdout.strip()


def test_a_failing_activity_shows_its_traceback(dev: Dev) -> None:
    dev.process.until(REGISTERED)
    task_id = dev.enqueue("fall", {"height": 3})
    line = dev.process.until(f"Task {task_id} (fall) failed in attempt 1 and is retried")
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning ", line)
    assert line.endswith("ValueError: 3 is too high")
    dev.process.until('raise ValueError(f"{height} is too high")')
    assert "tenure/sdk" not in dev.process.said


def test_a_timed_out_attempt_leaves_a_line(dev: Dev) -> None:
    dev.process.until(REGISTERED)
    options = ("--start-to-close", "500ms", "--max-attempts", "1")
    task_id = dev.enqueue("wait", {"gate": "never"}, *options)
    line = dev.process.until(f"Task {task_id} (wait) timed out in attempt 1")
    assert line.endswith("and is not retried: start_to_close is 500ms.")
    assert " error " in line


def test_a_reload_waits_for_what_runs(dev: Dev, folder: Path) -> None:
    gate = folder / "gate"
    dev.process.until(REGISTERED)
    task_id = dev.enqueue("wait", {"gate": str(gate)})
    eventually_sync(gate.with_suffix(".open").exists, "the task runs")
    write(folder, "Goodbye")
    dev.process.until("Draining")
    gate.touch()
    dev.process.until(REGISTERED, count=2)
    shown = read(invoke("tasks", "show", task_id, "--target", dev.grpc, "-o", "json"))
    assert (shown["state"], shown["attempt"]) == ("SUCCEEDED", 1)


def test_code_that_cannot_be_imported_is_told_and_tried_again(dev: Dev, folder: Path) -> None:
    dev.process.until(REGISTERED)
    write(folder, "Hello", imports="import nothing_of_this_name")
    dev.process.until("No module named 'nothing_of_this_name'")
    dev.process.until("It starts again when a file changes.")
    write(folder, "Again")
    dev.process.until(REGISTERED, count=2)
    assert dev.result("greet", {"name": "Ann"}) == "Again Ann"


def test_the_end_drains_the_worker_before_the_server_goes(dev: Dev, folder: Path) -> None:
    gate = folder / "gate"
    dev.process.until(REGISTERED)
    dev.enqueue("wait", {"gate": str(gate)})
    eventually_sync(gate.with_suffix(".open").exists, "the task runs")
    dev.process.send(signal.SIGTERM)
    dev.process.until("Draining: 1 task(s)")
    assert not dev.is_server_gone()
    gate.touch()
    assert dev.process.exit_code() == 0, dev.process.said
    assert "could not" not in dev.process.said


def test_a_second_signal_does_not_wait_for_what_runs(folder: Path) -> None:
    gate = folder / "gate"
    dev = Dev(folder, "tasks", "--drain-deadline", "10m")
    with dev.process:
        dev.process.until(REGISTERED)
        dev.enqueue("wait", {"gate": str(gate)})
        eventually_sync(gate.with_suffix(".open").exists, "the task runs")
        dev.process.send(signal.SIGINT)
        dev.process.until("Draining: 1 task(s)")
        dev.process.send(signal.SIGINT)
        dev.process.until("hands back")
        assert dev.process.exit_code() == 0, dev.process.said


def test_nothing_is_left_when_it_is_killed(dev: Dev) -> None:
    dev.process.until(REGISTERED)
    dev.process.kill()
    eventually_sync(dev.is_server_gone, "the server has ended")


def test_a_given_store_stays(tmp_path: Path, folder: Path) -> None:
    store = tmp_path / "kept.db"
    url = f"sqlite:///{store}"
    first = Dev(folder, "tasks", "--no-reload", "--store", url)
    with first.process:
        assert first.result("greet", {"name": "Ann"}) == "Hello Ann"
        write(folder, "Goodbye")
        assert first.result("greet", {"name": "Ann"}) == "Hello Ann"
        first.process.send(signal.SIGINT)
        assert first.process.exit_code() == 0
    second = Dev(folder, "--store", url)
    with second.process:
        listed = read(invoke("tasks", "ls", "--target", second.grpc, "-o", "json"))
        assert len(listed["tasks"]) == 2
        second.process.send(signal.SIGINT)
        assert second.process.exit_code() == 0


def test_a_port_that_is_taken_is_told_by_the_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with CommandProcess(tmp_path, "dev", "--http", address) as process:
            assert process.exit_code() == 2
            assert f"Cannot listen on {address}" in process.said


def test_a_file_is_no_module(tmp_path: Path) -> None:
    with CommandProcess(tmp_path, "dev", "app/tasks.py") as process:
        assert process.exit_code() == 2
        assert "Name the module: app.tasks" in process.said


# -- Which files are watched


def test_python_files_are_watched_and_environments_are_not(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", ".hidden/c.py", "env/d.py", "node_modules/e.py", "f.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    seen = file_watch.take(tmp_path)
    assert sorted(os.path.relpath(path, tmp_path) for path in seen) == ["a.py", "sub/b.py"]


def test_new_gone_and_different_files_are_changes(tmp_path: Path) -> None:
    for name in ("gone.py", "same.py", "other.py"):
        (tmp_path / name).write_text("1")
    before = file_watch.take(tmp_path)
    assert file_watch.changed(before, file_watch.take(tmp_path)) == []
    (tmp_path / "gone.py").unlink()
    (tmp_path / "other.py").write_text("12")
    (tmp_path / "new.py").write_text("1")
    found = file_watch.changed(before, file_watch.take(tmp_path))
    assert [Path(path).name for path in found] == ["gone.py", "new.py", "other.py"]


def test_the_folder_of_a_module_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "module_of_a_test.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(package)
    assert file_watch.root_of("package_of_a_test.tasks") == tmp_path
    assert file_watch.root_of("module_of_a_test") == tmp_path
    assert file_watch.root_of("no_module_of_this_name") == package
