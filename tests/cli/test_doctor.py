"""``tenure doctor``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import tenure
from tenure.cli.show import diagnosis_view
from tenure.v1 import admin_service_pb2 as pb
from tests.cli.conftest import Run, invoke, read
from tests.cli.server import ServerProcess

_numbers = itertools.count(1)
WEEK_MS = 7 * 86_400_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doctor")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    """A server of its own: what other tests leave behind is worth a finding."""
    with ServerProcess(f"sqlite:///{folder}/tenure.db", folder / "log") as process:
        yield process


@pytest.fixture
def namespace(run: Run) -> str:
    """Return a namespace that no other test uses."""
    name = f"doctor-{next(_numbers)}"
    assert run("namespaces", "create", name).exit_code == 0
    return name


def orphan(run: Run, folder: Path, namespace: str) -> str:
    """Enqueue a task that nobody offers to do, and let it be old."""
    made = run("tasks", "enqueue", "resize", "--namespace", namespace)
    task_id = made.stdout.strip()
    connection = apsw.Connection(str(folder / "tenure.db"))
    connection.set_busy_timeout(5_000)
    connection.execute(
        "UPDATE tasks SET run_at_ms = run_at_ms - ? WHERE id = ?", (WEEK_MS, task_id)
    )
    connection.close()
    return task_id


def test_without_a_problem_the_exit_code_is_zero(run: Run, namespace: str) -> None:
    shown = run("doctor", "--namespace", namespace)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("No problems: ")
    every = run("doctor", "--namespace", namespace, "--all")
    assert every.exit_code == 0
    lines = every.stdout.splitlines()[:-1]
    assert all(line.startswith("OK ") for line in lines)
    checks = {line.split()[1].rstrip(":") for line in lines}
    expected = {"clock_skew", "client_clock", "store_latency", "store_durability", "migrations"}
    assert expected | {"disk", "client_version", "sdk_version"} <= checks


def test_a_problem_is_a_line_with_what_to_do_and_exit_code_seven(
    run: Run, folder: Path, namespace: str
) -> None:
    task_id = orphan(run, folder, namespace)
    shown = run("doctor", "--namespace", namespace)
    assert shown.exit_code == 7
    (line,) = shown.stdout.splitlines()
    assert line.startswith("PROBLEM orphaned_work: Tasks of type resize have waited in ")
    assert line.endswith(f"tenure worker MODULE --queue default --namespace {namespace}/default")
    assert shown.stderr.startswith("1 problem, 0 warnings, ")
    run("tasks", "cancel", task_id, "--namespace", namespace)
    assert run("doctor", "--namespace", namespace).exit_code == 0


def test_the_problems_of_all_namespaces_are_found(run: Run, folder: Path, namespace: str) -> None:
    task_id = orphan(run, folder, namespace)
    shown = run("doctor")
    assert shown.exit_code == 7
    assert f"{namespace}/default" in shown.stdout
    run("tasks", "cancel", task_id, "--namespace", namespace)


def test_as_json_it_has_the_names_of_the_http_api(run: Run, folder: Path, namespace: str) -> None:
    healthy = read(run("doctor", "--namespace", namespace, "-o", "json"))
    assert healthy["serverVersion"] == healthy["clientVersion"] == tenure.__version__
    assert {"serverId", "serverNow", "storeNow"} <= healthy.keys()
    task_id = orphan(run, folder, namespace)
    lines = run("doctor", "--namespace", namespace, "-o", "jsonl")
    assert lines.exit_code == 7
    findings = [json.loads(line) for line in lines.stdout.splitlines()]
    assert findings[0]["check"] == "orphaned_work"
    assert findings[0]["level"] == "problem"
    assert findings[0].keys() == {"check", "level", "message", "advice", "evidence"}
    assert {each["level"] for each in findings[1:]} == {"ok"}
    run("tasks", "cancel", task_id, "--namespace", namespace)


def test_a_server_that_is_away_is_exit_code_five() -> None:
    away = invoke("doctor", "--target", "127.0.0.1:1")
    assert away.exit_code == 5
    assert "There is no Tenure server at 127.0.0.1:1." in away.stderr


def test_a_namespace_that_is_not_there_is_exit_code_three(run: Run) -> None:
    assert run("doctor", "--namespace", "nobody").exit_code == 3


@pytest.mark.parametrize(("version", "level"), [(tenure.__version__, "ok"), ("77.0.1", "warning")])
def test_versions_are_compared(version: str, level: str) -> None:
    shown = diagnosis_view.diagnosis(pb.DiagnoseResponse(server_version=version))
    (finding,) = shown.findings
    assert (finding.check, finding.level) == ("client_version", level)
    assert shown.store_now is None
