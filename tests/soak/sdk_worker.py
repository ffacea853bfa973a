"""A worker of the SDK as a program: ``python -m tests.soak.sdk_worker --target … --journal …``."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
from pathlib import Path

from tenure import TLS, Worker
from tests.soak import sdk_workflow
from tests.soak.sdk_activity import JOURNAL

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.soak.sdk_worker")
    parser.add_argument("--target", required=True)
    parser.add_argument("--mode", choices=("session", "poll"), default="session")
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--activities", metavar="MODULE", default="tests.soak.sdk_activity")
    parser.add_argument("--workflows", metavar="MODULE", default="tests.soak.sdk_workflow")
    parser.add_argument("--no-activities", action="store_true", help="have none, of any module")
    parser.add_argument("--no-workflows", action="store_true")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--queue", default="default", help="several with commas between them")
    parser.add_argument("--warm-runs", type=int, default=1_000)
    parser.add_argument("--die-at", metavar="POINT:STEP")
    parser.add_argument("--drain-deadline", default="5m")
    parser.add_argument("--journal", required=True)
    parser.add_argument("--api-key")
    parser.add_argument("--api-key-file", type=Path)
    parser.add_argument("--tls-ca")
    said = parser.parse_args()
    os.environ[JOURNAL] = said.journal
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if said.die_at:
        point, _, number = said.die_at.partition(":")
        sdk_workflow.die_at(point, int(number))
    activities = importlib.import_module(said.activities).ACTIVITIES
    workflows = importlib.import_module(said.workflows).WORKFLOWS
    worker = Worker(
        said.target,
        activities=[] if said.no_activities else activities,
        workflows=[] if said.no_workflows else workflows,
        warm_runs=said.warm_runs,
        max_concurrent=said.slots,
        max_processes=said.processes,
        queues=said.queue.split(","),
        drain_deadline=said.drain_deadline,
        mode=said.mode,
        api_key=said.api_key or said.api_key_file,
        tls=TLS(ca=said.tls_ca) if said.tls_ca else None,
    )
    asyncio.run(worker.run())
