"""Every command has one spec, and every event and effect somebody who handles it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from typing import Any, get_args, get_type_hints
from unittest import mock

import pytest

import tenure.engine
from tenure.core.task import decide as task_rules
from tenure.core.task import rule as task_rule
from tenure.core.task.event import TaskEvent
from tenure.core.worker import decide as worker_rules
from tenure.core.worker import lease as lease_rules
from tenure.engine.access.command import SetQueue
from tenure.engine.batch.working_set import AnyEffect, WorkingSet
from tenure.engine.claim.dispatch import Dispatch
from tenure.engine.command import Command
from tenure.engine.command_spec import CommandSpec
from tenure.engine.command_table import ALL_SPECS, SPECS
from tenure.engine.engine import Engine
from tenure.engine.task.command import ClaimTasks
from tenure.errors import InvalidArgument
from tenure.store.table.lock_order import RowSets
from tenure.store.transaction import LaneName
from tests.engine.world import NAMESPACE


def _all_commands() -> set[type]:
    for each in pkgutil.walk_packages(tenure.engine.__path__, "tenure.engine."):
        importlib.import_module(each.name)
    kinds = {each for each in Command.__subclasses__() if each.__module__.startswith("tenure.")}
    assert not any(kind.__subclasses__() for kind in kinds)
    return kinds


def test_every_command_has_exactly_one_spec() -> None:
    counts = Counter(each.kind for each in ALL_SPECS)
    assert counts == dict.fromkeys(_all_commands(), 1)
    assert SPECS.keys() == counts.keys()


def _id(spec: CommandSpec[Any]) -> str:
    return spec.kind.__name__


@pytest.mark.parametrize("spec", ALL_SPECS, ids=_id)
def test_the_handler_of_a_command_gives_its_answer(spec: CommandSpec[Any]) -> None:
    """mypy compares check, needs and handler with the command, but not the answer."""
    if spec.lane is LaneName.HEARTBEAT or spec.kind is ClaimTasks:
        # The heartbeat lane and the hand-out answer these.
        assert spec.handler is CommandSpec(spec.kind).handler
        return
    (base,) = spec.kind.__orig_bases__
    assert get_type_hints(spec.handler)["return"] == get_args(base)[0]


@pytest.mark.parametrize("spec", ALL_SPECS, ids=_id)
def test_the_functions_of_a_spec_stand_in_the_room_of_its_command(spec: CommandSpec[Any]) -> None:
    # What a spec does not name is the same for all.
    rooms = {spec.kind.__module__.rpartition(".")[0], "tenure.engine"}
    for function in (spec.check, spec.needs, spec.handler, spec.weigh, spec.payload_bytes):
        assert function.__module__.rpartition(".")[0] in rooms, function


def test_only_the_engine_itself_makes_commands_that_are_not_checked() -> None:
    unchecked = CommandSpec(ClaimTasks).check
    assert {each.kind.__name__ for each in ALL_SPECS if each.check is unchecked} == {
        "SignalCancels",
        "CloseChildren",
        "ReturnUndelivered",
        "ProcessDue",
        "SpareWorkers",
        "StopsTold",
        "JudgeLeases",
        "ReleaseHeldTasks",
        "TouchServer",
        "FireSchedules",
        "BreakSchedule",
        "SettleFires",
        "WakeSchedules",
    }


def test_what_is_new_work_and_what_is_awaited() -> None:
    def names(flag: str) -> set[str]:
        return {each.kind.__name__ for each in ALL_SPECS if getattr(each, flag)}

    assert names("is_new_work") == {
        *("EnqueueTasks", "StartRun", "RetryRun", "ClaimTasks", "RegisterWorker"),
        *("CreateSchedule", "PutSchedule", "TriggerSchedule", "BackfillSchedule"),
    }
    awaited = {"EnqueueTasks", "FinishTasks", "StartRun", "RecordSteps", "SpawnTasks"}
    awaited |= {"CompleteCallback"}
    assert names("is_awaited") == awaited
    reports = {"ConfirmTasks", "HeartbeatTasks", "FinishTasks", "RecordSteps"}
    assert names("can_be_single") == {"EnqueueTasks"} | reports


class NameQueue(Command[str], frozen=True, kw_only=True):
    """A command that no room knows."""

    namespace: str
    name: str


async def test_a_new_command_needs_a_spec_and_nothing_else(engine: Engine) -> None:
    """It is checked, loaded, decided and answered; no table besides the specs knows it."""

    def check(command: NameQueue) -> None:
        if not command.name:
            message = "name must not be empty"
            raise InvalidArgument(message, field="name")

    def needs(needs: RowSets, command: NameQueue) -> None:
        needs.queues.wanted.add((command.namespace, command.name))

    def handle(ws: WorkingSet, command: NameQueue) -> str:
        queue = ws.queues[command.namespace, command.name]
        return f"{queue.name} takes {queue.concurrency_max}"

    spec = CommandSpec(NameQueue, check, needs, handle, weigh=lambda _: 2)
    await engine.submit(SetQueue(namespace=NAMESPACE, name="mail", concurrency_max=3))
    with mock.patch.dict(SPECS, {NameQueue: spec}):
        answer = await engine.submit(NameQueue(namespace=NAMESPACE, name="mail"))
        assert answer == "mail takes 3"
        with pytest.raises(InvalidArgument):
            engine.submit(NameQueue(namespace=NAMESPACE, name=""))


def test_every_event_has_a_rule_and_somebody_who_decides_it() -> None:
    events = set(get_args(TaskEvent))
    assert task_rules.DECIDERS.keys() == events
    assert task_rule.RULES.keys() == events
    assert worker_rules.RULES.keys() == set(get_args(worker_rules.WorkerEvent))


@pytest.mark.parametrize(
    ("place", "union"),
    [
        (worker_rules, worker_rules.WorkerEvent),
        (lease_rules, lease_rules.LeaseEvent),
        (Dispatch.perform, AnyEffect),
    ],
    ids=["worker", "lease", "effect"],
)
def test_every_case_is_named_and_the_rest_is_a_type_error(place: Any, union: Any) -> None:
    source = inspect.getsource(place)
    assert "assert_never(" in source
    for kind in get_args(union):
        assert f"case {kind.__name__}(" in source
