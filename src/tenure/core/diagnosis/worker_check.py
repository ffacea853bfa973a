"""Checks of the workers and the waiting work of namespaces, from facts that were read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from tenure.core.diagnosis.finding import Finding, Level, ok
from tenure.core.duration import duration_text
from tenure.core.explain.fact import DEFAULT_NAMESPACE, counted
from tenure.core.instant import instant_text
from tenure.core.limits import FINDINGS_MAX, STUCK_MS, WAITING_PROBLEM_MS
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus

_SHOWN_MAX: Final = 5
_Ended = TypeVar("_Ended", "StuckLease", "Unreleased")


class Healths(msgspec.Struct, frozen=True, gc=False):
    """How many active workers of a namespace have a status and a health."""

    namespace: str
    status: WorkerStatus
    health: Health
    count: int


class Sdk(msgspec.Struct, frozen=True, gc=False):
    """How many active workers of a namespace report an SDK version."""

    namespace: str
    name: str
    count: int


class StuckLease(msgspec.Struct, frozen=True, gc=False):
    """A lease that ended and was not judged."""

    worker_id: str
    namespace: str
    worker_name: str
    lease_until_ms: int


class Unreleased(msgspec.Struct, frozen=True, gc=False):
    """A worker that ended and whose tasks were not put back."""

    worker_id: str
    namespace: str
    worker_name: str
    ended_at_ms: int


class SeatTrouble(msgspec.Struct, frozen=True, gc=False):
    """A served worker that no server drives, or to which the last calls failed."""

    worker_id: str
    namespace: str
    worker_name: str
    address: str
    failures: int
    call_error: str
    is_driven: bool


class Overdue(msgspec.Struct, frozen=True, gc=False):
    """How many timers of a namespace are late, and since when."""

    namespace: str
    count: int
    due_at_ms: int


class WaitingLine(msgspec.Struct, frozen=True, gc=False):
    """Since when the oldest task of a type waits in a queue that may hand it out."""

    namespace: str
    queue: str
    type: str
    run_at_ms: int


def check_health(healths: Sequence[Healths]) -> list[Finding]:
    """Report namespaces with unhealthy workers; it is a problem if all of them are unhealthy."""
    found = []
    for namespace in sorted({each.namespace for each in healths}):
        online = [
            each
            for each in healths
            if each.namespace == namespace and each.status is WorkerStatus.ONLINE
        ]
        ill = [each for each in online if each.health is not Health.HEALTHY]
        if ill:
            found.append(_unwell(namespace, ill, sum(each.count for each in online)))
    total = sum(each.count for each in healths)
    return found or [
        ok("worker_health", f"{counted(total, 'worker')}, none unhealthy.", workerCount=str(total))
    ]


def _unwell(namespace: str, ill: Sequence[Healths], online_count: int) -> Finding:
    count = sum(each.count for each in ill)
    told = ", ".join(f"{each.count} {each.health}" for each in ill)
    level = Level.PROBLEM if count == online_count else Level.WARNING
    who = f"{count} of {counted(online_count, 'worker')} in {namespace}"
    message = f"{who} {'is' if count == 1 else 'are'} unhealthy: {told}."
    advice = f"List them: {_command('tenure workers ls', namespace)}"
    evidence = {"namespace": namespace, "onlineCount": str(online_count)}
    evidence |= {each.health.value: str(each.count) for each in ill}
    return Finding("worker_health", level, message, advice, evidence)


def check_seats(troubles: Sequence[SeatTrouble]) -> list[Finding]:
    """Report served workers that no server drives, and those to which calls fail."""
    found = []
    for each in troubles[:_SHOWN_MAX]:
        name = each.worker_name or each.worker_id
        evidence = {
            "namespace": each.namespace,
            "workerId": each.worker_id,
            "address": each.address,
            "failureCount": str(each.failures),
        }
        if not each.is_driven:
            message = f"No live server drives worker {name} in {each.namespace}."
            advice = "Check that a server of this version runs, and its log for seats.* events."
            found.append(Finding("worker_calls", Level.PROBLEM, message, advice, evidence))
            continue
        message = (
            f"{counted(each.failures, 'call')} in a row to worker {name} in {each.namespace} at "
            f"{each.address} failed: {each.call_error or 'no answer'}"
        )
        advice = "Check its process, and that the server may connect to this address."
        found.append(Finding("worker_calls", Level.WARNING, message, advice, evidence))
    return found or [ok("worker_calls", "No call to a served worker fails.")]


def check_sdks(sdks: Sequence[Sdk], *, server_version: str) -> list[Finding]:
    """Report workers whose SDK has another release than the server."""
    found = []
    for each in sdks:
        version = each.name.rpartition("/")[2]
        if version and _release(version) != _release(server_version):
            message = (
                f"{counted(each.count, 'worker')} in {each.namespace} run with SDK {each.name}, "
                f"the server is {server_version}."
            )
            advice = "Old and new versions work together during an upgrade. Upgrade the older ones."
            evidence = {
                "namespace": each.namespace,
                "sdk": each.name,
                "workerCount": str(each.count),
                "serverVersion": server_version,
            }
            found.append(Finding("sdk_version", Level.WARNING, message, advice, evidence))
    unknown = sum(each.count for each in sdks if not each.name)
    evidence = {"serverVersion": server_version, "unknownCount": str(unknown)}
    return found or [ok("sdk_version", "All workers have the release of the server.", **evidence)]


def _release(version: str) -> tuple[str, ...]:
    """Return the part that has to be equal: a later patch of the same release is compatible."""
    return tuple(version.split(".")[:2])


def check_leases(leases: Sequence[StuckLease], *, now_ms: int) -> list[Finding]:
    """Report leases that ended long ago: their workers keep tasks that others should get."""
    found = []
    for namespace, stuck in _by_namespace(leases).items():
        oldest_ms = now_ms - min(each.lease_until_ms for each in stuck)
        message = (
            f"{counted(len(stuck), 'lease')} in {namespace} ended up to {duration_text(oldest_ms)} "
            "ago, and no server has judged them."
        )
        advice = (
            "A server judges leases only while it can receive heartbeats. Look for warnings of "
            "lease_judgement and server_row in its log. To take one worker offline: "
            f"{_command(f'tenure workers evict {stuck[0].worker_id}', namespace)}"
        )
        evidence = {"namespace": namespace, "workers": _named(stuck)}
        found.append(Finding("stuck_leases", Level.PROBLEM, message, advice, evidence))
    return found or [ok("stuck_leases", "No lease has ended without being judged.")]


def check_releases(workers: Sequence[Unreleased], *, now_ms: int) -> list[Finding]:
    """Report ended workers whose tasks were not put back."""
    found = []
    for namespace, left in _by_namespace(workers).items():
        oldest_ms = now_ms - min(each.ended_at_ms for each in left)
        message = (
            f"The tasks of {counted(len(left), 'worker')} in {namespace} that ended up to "
            f"{duration_text(oldest_ms)} ago were not put back."
        )
        advice = "Look for warnings of held_release in the log of the server, then restart it."
        evidence = {"namespace": namespace, "workers": _named(left)}
        found.append(Finding("unreleased_tasks", Level.PROBLEM, message, advice, evidence))
    return found or [ok("unreleased_tasks", "The tasks of every ended worker were put back.")]


def check_timers(overdue: Sequence[Overdue], *, now_ms: int) -> list[Finding]:
    """Report late timers: retries, timeouts and delays come late."""
    found = []
    for each in overdue:
        late = duration_text(now_ms - each.due_at_ms)
        message = (
            f"{counted(each.count, 'timer')} of tasks in {each.namespace} are up to {late} late."
        )
        advice = (
            "Look for warnings of due_tasks in the log of the server: it is overloaded, or the "
            "store is slow."
        )
        evidence = {
            "namespace": each.namespace,
            "count": str(each.count),
            "oldestDueAt": instant_text(each.due_at_ms),
        }
        found.append(Finding("late_timers", Level.PROBLEM, message, advice, evidence))
    return found or [ok("late_timers", "No timer is late.")]


def check_waiting(
    lines: Sequence[WaitingLine], offered: Mapping[tuple[str, str], Collection[str]], *, now_ms: int
) -> list[Finding]:
    """Report waiting tasks whose type no online worker offers, the oldest first."""
    orphaned = [
        line
        for line in sorted(lines, key=lambda line: line.run_at_ms)
        if now_ms - line.run_at_ms >= WAITING_PROBLEM_MS
        and line.type not in offered.get((line.namespace, line.queue), ())
    ]
    return [_orphaned(line, now_ms) for line in orphaned[:FINDINGS_MAX]] or [
        ok("orphaned_work", "A worker offers every type of task that has waited for some time.")
    ]


def _orphaned(line: WaitingLine, now_ms: int) -> Finding:
    message = (
        f"Tasks of type {line.type} have waited in queue {line.queue} of {line.namespace} for "
        f"{duration_text(now_ms - line.run_at_ms)}, and no worker there offers that type."
    )
    command = _command(f"tenure worker MODULE --queue {line.queue}", line.namespace)
    advice = f"Start a worker that offers it: {command}"
    evidence = {
        "namespace": line.namespace,
        "queue": line.queue,
        "type": line.type,
        "waitingSince": instant_text(line.run_at_ms),
    }
    return Finding("orphaned_work", Level.PROBLEM, message, advice, evidence)


def stuck_before_ms(now_ms: int) -> int:
    """Return the latest end of something that should have been handled by now."""
    return now_ms - STUCK_MS


def _by_namespace(found: Sequence[_Ended]) -> dict[str, list[_Ended]]:
    groups: dict[str, list[_Ended]] = {}
    for each in found:
        groups.setdefault(each.namespace, []).append(each)
    return groups


def _named(found: Sequence[StuckLease | Unreleased]) -> str:
    names = [each.worker_name or each.worker_id for each in found]
    return ", ".join(names[:_SHOWN_MAX]) + (" …" if len(names) > _SHOWN_MAX else "")


def _command(text: str, namespace: str) -> str:
    return text if namespace == DEFAULT_NAMESPACE else f"{text} --namespace {namespace}"
