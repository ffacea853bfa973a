"""The specs of worker commands. The heartbeat lane decides its own (``heartbeat.py``)."""

from __future__ import annotations

from typing import Final

from tenure.engine.command_spec import CommandSpec
from tenure.engine.worker import check, handler, needs
from tenure.engine.worker import command as c
from tenure.store.transaction import LaneName

# A tuple without a type of its own: mypy compares each function with its kind of command.
WORKER_SPECS: Final = (
    CommandSpec(
        c.RegisterWorker,
        check.register_worker,
        needs.register_worker,
        handler.register_worker,
        is_new_work=True,
    ),
    CommandSpec(c.DrainWorker, check.drain_worker, needs.one_worker, handler.drain_worker),
    CommandSpec(
        c.DeregisterWorker, check.known_worker, needs.one_worker, handler.deregister_worker
    ),
    CommandSpec(c.EvictWorker, check.known_worker, needs.one_worker, handler.evict_worker),
    CommandSpec(c.OpenSession, check.open_session, needs.open_session, handler.open_session),
    CommandSpec(c.CloseSession, check.known_worker, needs.close_session, handler.close_session),
    CommandSpec(c.SpareWorkers, needs=needs.spare_workers, handler=handler.spare_workers),
    CommandSpec(c.FailCall, check.known_worker, needs.one_worker, handler.fail_call),
    CommandSpec(c.ReportHeld, check.report_held, needs.report_held, handler.report_held),
    CommandSpec(c.StopsTold, needs=needs.stops_told, handler=handler.stops_told),
    CommandSpec(c.JudgeLeases, needs=needs.judge_leases, handler=handler.judge_leases),
    CommandSpec(
        c.ReleaseHeldTasks,
        needs=needs.release_held,
        handler=handler.release_held,
        weigh=lambda command: command.amount,
    ),
    CommandSpec(c.Heartbeat, check=check.heartbeat, lane=LaneName.HEARTBEAT),
    CommandSpec(c.TouchServer, lane=LaneName.HEARTBEAT),
)
