"""``tenure namespaces``."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.cli.conftest import Run, read

_numbers = itertools.count(1)


@pytest.fixture
def name(run: Run) -> str:
    """Return a namespace of this test."""
    made = f"team-{next(_numbers)}"
    assert run("namespaces", "create", made).exit_code == 0
    return made


def test_a_namespace_is_listed_and_shown(run: Run, name: str) -> None:
    listed = read(run("namespaces", "ls", "-o", "json"))["namespaces"]
    (found,) = [each for each in listed if each["name"] == f"{name}/default"]
    assert found["state"] == "ENABLED"
    lines = run("namespaces", "ls", "-o", "jsonl").stdout.splitlines()
    assert found in [json.loads(line) for line in lines]
    assert read(run("namespaces", "show", name, "-o", "json")) == found
    assert "ENABLED" in run("namespaces", "show", f"{name}/default").stdout
    assert run("namespaces", "show", "nobody").exit_code == 3


def test_a_disabled_namespace_takes_no_tasks_until_it_is_enabled(run: Run, name: str) -> None:
    assert run("namespaces", "disable", name).stdout == f"Namespace {name}/default is disabled.\n"
    refused = run("tasks", "enqueue", "x", "--namespace", name)
    assert refused.exit_code == 4
    assert "enable" in refused.stderr
    assert run("tasks", "ls", "--namespace", name).exit_code == 0
    # Doing so twice is fine.
    again = read(run("namespaces", "disable", name, "-o", "json"))
    assert again["state"] == "DISABLED"
    assert run("namespaces", "enable", name).exit_code == 0
    assert run("tasks", "enqueue", "x", "--namespace", name).exit_code == 0


def test_a_namespace_that_does_not_exist_cannot_be_changed(run: Run) -> None:
    for command in ("disable", "enable"):
        assert run("namespaces", command, "nobody").exit_code == 3
    assert run("namespaces", "create", "a/b/c").exit_code == 2
