"""Why no worker takes a task: there is none, none fits, or those that fit cannot take it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from tenure.core.explain.endpoint_reason import endpoint_reasons
from tenure.core.explain.fact import Crew, Facts, NearWorker, WaitingReason, counted, instants
from tenure.core.task.record import TaskKind
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus

_TYPES_SHOWN_MAX: Final = 20
# What each bad health means, and what to do about it.
_ILLS: Final = {
    Health.SUSPECT: (
        "its connection broke",
        "It has a few seconds to reconnect; then its tasks go to others. Check its process.",
    ),
    Health.LATE: (
        "its heartbeats are late, or calls to it fail",
        "Check its host: it is overloaded, suspended, or has no connection to the server.",
    ),
    Health.BLOCKED: (
        "its event loop is blocked",
        "Put blocking code into a plain function, which runs in a thread.",
    ),
    Health.DEAF: (
        "it is alive but requests no work",
        "Restart it, and check its log for what it waits for.",
    ),
    Health.STUCK: (
        "some of its attempts do not stop although they were told to",
        "Restart it; run code that cannot be stopped in a process of its own.",
    ),
}


def worker_reasons(facts: Facts) -> list[WaitingReason]:
    """Return why no worker takes the task now; nothing if one could."""
    if not facts.crews:
        # Where no endpoint could take it either.
        return endpoint_reasons(facts, [_nobody(facts)])
    online = [crew for crew in facts.crews if crew.status is WorkerStatus.ONLINE]
    if not online:
        return [_all_draining(facts)]
    healthy = [crew for crew in online if crew.health is Health.HEALTHY]
    free = [crew for crew in healthy if not crew.is_full]
    if free:
        return []
    ill = [crew for crew in online if crew.health is not Health.HEALTHY]
    found = [_busy(facts, healthy)] if healthy else []
    return [*found, _unhealthy(facts, ill)] if ill else found


def is_kept_by_guard(facts: Facts) -> bool:
    """Return whether a suspected task waits for a worker that holds no other suspect."""
    free = [
        crew
        for crew in facts.crews
        if crew.status is WorkerStatus.ONLINE and crew.health is Health.HEALTHY and not crew.is_full
    ]
    return facts.task.is_guarded and bool(free) and all(crew.is_guarding for crew in free)


def _nobody(facts: Facts) -> WaitingReason:
    if facts.served_count:
        return _only_served(facts)
    queue, type_ = facts.task.queue, facts.task.type
    here = [worker for worker in facts.near if worker.queue == queue]
    elsewhere = [worker for worker in facts.near if worker.queue != queue]
    also = _elsewhere(elsewhere, type_)
    if here:
        return _wrong_types(facts, here, also)
    evidence = {"queue": queue, "type": type_, **_named("offeredElsewhereBy", elsewhere)}
    message = f"No worker serves queue {queue}.{also}"
    last = facts.last_ended
    if last is not None:
        ended = instants(lastEndedAt=last.ended_at_ms)
        evidence |= {"lastWorker": last.name or last.id, "lastEndReason": last.reason, **ended}
        message += (
            f" The last one, {last.name or last.id}, ended at {ended['lastEndedAt']} "
            f"({last.reason.replace('_', ' ')})."
        )
    advice = f"Start a worker: {facts.command(f'tenure worker MODULE --queue {queue}')}"
    return WaitingReason("no_worker", message, advice, evidence)


def _only_served(facts: Facts) -> WaitingReason:
    queue, count = facts.task.queue, facts.served_count
    message = (
        f"Only served workers offer {facts.task.type} on queue {queue} ({count}). They run "
        "activities: runs are never handed out in this mode."
    )
    command = facts.command(f"tenure worker MODULE --queue {queue}")
    advice = f"Start a worker with a session: {command}"
    evidence = {"queue": queue, "type": facts.task.type, "workerCount": str(count)}
    return WaitingReason("no_worker_for_runs", message, advice, evidence)


def _wrong_types(facts: Facts, here: Sequence[NearWorker], also: str) -> WaitingReason:
    queue, type_ = facts.task.queue, facts.task.type
    types = sorted({each for worker in here for each in worker.types})
    shown = ", ".join(types[:_TYPES_SHOWN_MAX]) + (" …" if len(types) > _TYPES_SHOWN_MAX else "")
    similar = difflib.get_close_matches(type_, types[:1000], n=3)
    evidence = {
        "queue": queue,
        "type": type_,
        "workerCount": str(here[0].alike_count),
        "offered": shown,
        **_named("workers", here),
    }
    message = (
        f"{_serve(here[0].alike_count)} queue {queue} without offering {type_}. "
        f"Offered there: {shown}.{also}"
    )
    is_task = facts.task.kind is TaskKind.ACTIVITY
    noun = "an activity" if is_task else "a workflow"
    advice = f"Add {noun} of this name to a worker of queue {queue}, and restart it."
    if similar:
        evidence["similar"] = ", ".join(similar)
        again = "enqueue the task" if is_task else "start the run"
        advice += f" If you meant {' or '.join(similar)}, {again} under that name."
    return WaitingReason("no_worker_for_type", message, advice, evidence)


def _serve(count: int) -> str:
    return "1 worker serves" if count == 1 else f"{count} workers serve"


def _elsewhere(workers: Sequence[NearWorker], type_: str) -> str:
    if not workers:
        return ""
    queues = sorted({worker.queue for worker in workers})
    return f" {type_} is offered on queue {', '.join(queues)}."


def _named(name: str, workers: Sequence[NearWorker]) -> dict[str, str]:
    if not workers:
        return {}
    return {name: ", ".join(f"{each.name or each.id} ({each.queue})" for each in workers)}


def _all_draining(facts: Facts) -> WaitingReason:
    count = sum(crew.count for crew in facts.crews)
    message = (
        f"All workers that offer {facts.task.type} on queue {facts.task.queue} are draining "
        f"({count}): they finish what they hold and get nothing new."
    )
    advice = (
        "Start other workers: "
        f"{facts.command(f'tenure worker MODULE --queue {facts.task.queue}')}. "
        "A draining worker does not become online again."
    )
    return WaitingReason("all_draining", message, advice, _counts(facts, facts.crews))


def _busy(facts: Facts, crews: Sequence[Crew]) -> WaitingReason:
    count = sum(crew.count for crew in crews)
    message = f"All workers are busy: {counted(count, 'worker')} could run it, and every slot "
    message += f"of {'it' if count == 1 else 'them'} is in use."
    advice = (
        "It is handed out as soon as a slot is free. To run more at once, start more workers or "
        "give them more slots (max_concurrent)."
    )
    return WaitingReason("workers_busy", message, advice, _counts(facts, crews))


def _unhealthy(facts: Facts, crews: Sequence[Crew]) -> WaitingReason:
    by_health: dict[Health, int] = {}
    for crew in crews:
        by_health[crew.health] = by_health.get(crew.health, 0) + crew.count
    told = [f"{count} {health} ({_ILLS[health][0]})" for health, count in sorted(by_health.items())]
    count = sum(by_health.values())
    message = f"The {count} workers that could run it are unhealthy: {', '.join(told)}."
    if count == 1:
        message = f"The only worker that could run it is unhealthy: {told[0]}."
    worst = max(by_health, key=lambda health: by_health[health])
    advice = f"{_ILLS[worst][1]} See {facts.command('tenure workers ls')}"
    healths = {health.value: str(count) for health, count in sorted(by_health.items())}
    return WaitingReason("workers_unhealthy", message, advice, _counts(facts, crews) | healths)


def _counts(facts: Facts, crews: Sequence[Crew]) -> dict[str, str]:
    members = [member for crew in crews for member in crew.members]
    evidence = {
        "queue": facts.task.queue,
        "type": facts.task.type,
        "workerCount": str(sum(crew.count for crew in crews)),
        "workers": ", ".join(
            f"{each.title} ({each.held_count} of {counted(each.slots, 'slot')} in use)"
            for each in members
        ),
    }
    draining = [crew for crew in facts.crews if crew.status is WorkerStatus.DRAINING]
    if draining:
        evidence["drainingCount"] = str(sum(crew.count for crew in draining))
    return evidence
