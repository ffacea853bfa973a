"""What the tab key offers for a value: ids, queues and namespaces of the server, and modules.

A shell waits for the answer, and nobody can be told what went wrong. So a server has one second,
and whatever fails offers nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from tenure.cli.client.client import ServerClient

CALL_SECONDS: Final = 1.0
_OFFERED_MAX: Final = 100
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Pairs = Iterable[tuple[str, str]]


def _from_server(read: Callable[[ServerClient], Pairs]) -> Complete:
    """Offer what ``read`` finds: values, each with a few words about it."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del param
        try:
            found = _asked(ctx, read)
        except Exception:  # noqa: BLE001 (whatever it is, the line that is typed must stay whole)
            return []
        return [
            CompletionItem(value, help=text)
            for value, text in found
            if value.startswith(incomplete)
        ]

    return complete


def _asked(ctx: click.Context, read: Callable[[ServerClient], Pairs]) -> list[tuple[str, str]]:
    # Its C core would write about failed connections.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tenure.cli.client.client import ServerClient
    from tenure.cli.client.invocation import DEFAULT_NAMESPACE
    from tenure.cli.tls_option import tls_of

    given = ctx.params
    client = ServerClient(
        given["target"].split(","),
        given.get("namespace") or DEFAULT_NAMESPACE,
        api_key=given["api_key"],
        tls=tls_of(given["tls_ca"], given["tls_cert"], given["tls_key"], is_tls=given["is_tls"]),
        call_seconds=CALL_SECONDS,
    )
    try:
        return list(read(client))
    finally:
        client.close()


def _tasks(client: ServerClient) -> Pairs:
    from tenure.cli.client.request import TaskSelection

    found, _ = client.tasks.list_tasks(TaskSelection(limit=_OFFERED_MAX))
    return [(task.task_id, f"{task.type} {task.state}") for task in found]


def _runs(client: ServerClient) -> Pairs:
    from tenure.cli.client.request import RunSelection

    found, _ = client.runs.list_runs(RunSelection(limit=_OFFERED_MAX))
    return [(run.run_id, f"{run.type} {run.status}") for run in found]


def _schedules(client: ServerClient) -> Pairs:
    from tenure.cli.client.request import ScheduleSelection

    found, _ = client.schedules.list_schedules(ScheduleSelection(limit=_OFFERED_MAX))
    return [(each.schedule_id, f"{each.target.type} {each.state}") for each in found]


def _workers(client: ServerClient) -> Pairs:
    from tenure.cli.client.request import WorkerQuery
    from tenure.cli.show.worker_table import name_text

    found, _ = client.workers.list_workers(WorkerQuery(limit=_OFFERED_MAX))
    return [(worker.worker_id, f"{name_text(worker)} {worker.status}") for worker in found]


def _queues(client: ServerClient) -> Pairs:
    found, _ = client.queues.list_queues("", _OFFERED_MAX)
    return [(queue.name, queue.state) for queue in found]


def _namespaces(client: ServerClient) -> Pairs:
    found, _ = client.access.list_namespaces("", _OFFERED_MAX)
    return [(namespace.name, namespace.state) for namespace in found]


def _keys(client: ServerClient) -> Pairs:
    found, _ = client.access.list_keys("", _OFFERED_MAX)
    return [(key.key_id, f"{key.name} {key.state}") for key in found]


task_ids: Final = _from_server(_tasks)
run_ids: Final = _from_server(_runs)
schedule_ids: Final = _from_server(_schedules)
worker_ids: Final = _from_server(_workers)
queues: Final = _from_server(_queues)
namespaces: Final = _from_server(_namespaces)
key_ids: Final = _from_server(_keys)


def modules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the modules below the present folder; none of them is imported."""
    del ctx, param
    parent, dot, _ = incomplete.rpartition(".")
    found = _modules(Path.cwd().joinpath(*parent.split(".")), f"{parent}{dot}", is_deep=True)
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _modules(folder: Path, prefix: str, *, is_deep: bool) -> list[str]:
    """Return the modules of a folder, and those of its packages: a package alone is rarely it."""
    import pkgutil

    found = []
    for each in pkgutil.iter_modules([str(folder)]):
        name = prefix + each.name
        found.append(name)
        if each.ispkg and is_deep:
            found += _modules(folder / each.name, f"{name}.", is_deep=False)
    return found
