"""What a run waits for: a child, a signal, a timer, or code that fits its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tenure.core import check
from tenure.core.duration import duration_text
from tenure.core.explain.fact import (
    Awaited,
    Facts,
    TaskExplanation,
    WaitingReason,
    counted,
    error_evidence,
    error_text,
    shortened,
)
from tenure.core.group.record import Group
from tenure.core.instant import instant_text
from tenure.core.run.record import TIMED_WAITS, RunProgress, Wait
from tenure.core.run.wake_up import run_of
from tenure.core.task.record import TaskKind
from tenure.core.task.retry import ErrorInfo
from tenure.errors import InvalidArgument

Explain = Callable[[Facts], TaskExplanation]
"""How what a run waits for is explained: the same function as for itself."""

_NOT_AWAITED: Final = Awaited(())


def run_waits(facts: Facts, explain: Explain) -> Iterator[WaitingReason]:
    """Return one reason for each thing that a run waits for, as far as it has told them."""
    run = run_of(facts.task)
    if run.park is not None:
        yield _parked(facts, run, run.park)
        return
    if not run.waits:
        yield _untold(facts, run, explain)
    # What no timer ends is first: somebody may have to do something.
    for wait in sorted(run.waits, key=lambda each: each.kind in TIMED_WAITS):
        yield _wait(facts, run, wait, explain)
    hidden = run.wait_count - len(run.waits)
    if hidden > 0:
        message = f"It waits for {counted(hidden, 'more thing')} that it does not name."
        yield WaitingReason("waiting", message, "", {"for": "more", "count": str(hidden)})


def _parked(facts: Facts, run: RunProgress, error: ErrorInfo) -> WaitingReason:
    at = instant_text(run.wake_at_ms)
    until = duration_text(max(0, run.wake_at_ms - facts.now_ms))
    message = f"It is parked: {error_text(error).rstrip('.')}. It is tried again in {until}."
    advice = (
        "Deploy code that fits, or roll back. To try it at once: "
        f"{facts.own_command('resume')}. To end it: {facts.own_command('terminate')}"
    )
    evidence = {"parkCount": str(run.park_count), "triedAgainAt": at, **error_evidence(error)}
    return WaitingReason("parked", message, advice, evidence)


def _untold(facts: Facts, run: RunProgress, explain: Explain) -> WaitingReason:
    """Return what is known of a run that has not told what it waits for."""
    tasks = tuple(explain(each) for awaited in facts.awaited.values() for each in awaited.facts)
    if run.wake_at_ms:
        until = duration_text(max(0, run.wake_at_ms - facts.now_ms))
        message = f"It waits for a timer that ends in {until}."
        evidence = {"for": "timer", "wakesAt": instant_text(run.wake_at_ms)}
        advice = "Wait for the timer, or send a signal."
        return WaitingReason("waiting", message, advice, evidence, tasks)
    message = "It waits for a signal or for a step that it has started."
    advice = "Check the steps that it has started, or send the signal."
    return WaitingReason("waiting", message, advice, {"for": "event"}, tasks)


def _wait(facts: Facts, run: RunProgress, wait: Wait, explain: Explain) -> WaitingReason:
    evidence = {"for": wait.kind, "key": shortened(wait.key)}
    if wait.since_ms:
        evidence["since"] = instant_text(wait.since_ms)
    if wait.site:
        evidence["site"] = shortened(wait.site)
    if wait.kind in TIMED_WAITS:
        return _timed(facts, run, wait, evidence)
    if wait.detail:
        evidence["detail"] = shortened(wait.detail)
    if wait.kind == "signal":
        name = shortened(wait.key)
        message = f"It waits for the signal {name}{_since(evidence)}."
        advice = f"Send it: {facts.own_command('signal')} {name}"
        return WaitingReason("waiting", message, advice, evidence)
    awaited = facts.awaited.get(wait.key, _NOT_AWAITED)
    message = f"It waits for {wait.kind} {evidence['key']}{_since(evidence)}."
    if awaited.group is not None:
        message += f" {_open_text(awaited.group)}"
        evidence |= _group_evidence(awaited.group)
    advice = f"Look at it: {_show_command(facts, wait, awaited)}"
    tasks = tuple(explain(each) for each in awaited.facts)
    return WaitingReason("waiting", message, advice, evidence, tasks)


def _timed(facts: Facts, run: RunProgress, wait: Wait, evidence: dict[str, str]) -> WaitingReason:
    until_ms = _until_ms(run, wait)
    until = ""
    if until_ms:
        evidence["until"] = instant_text(until_ms)
        left = duration_text(max(0, until_ms - facts.now_ms))
        until = f" until {evidence['until']} (in {left})"
    what = f"waits for the next attempt of step {evidence['key']}"
    if wait.kind == "timer":
        is_sleep = _call_name(wait.key) == "sleep"
        what = "sleeps" if is_sleep else f"waits for the timer {evidence['key']}"
    message = f"It {what}{until}{_since(evidence)}."
    return WaitingReason("waiting", message, "Wait for it, or send a signal.", evidence)


def _until_ms(run: RunProgress, wait: Wait) -> int:
    """Return when a timed wait ends, 0 if it is not told."""
    if wait.detail.isascii() and wait.detail.isdigit():
        try:
            return check.instant_ms(int(wait.detail[:20]), "waits")
        except InvalidArgument:
            return 0
    return run.wake_at_ms if wait.key == run.wake_key else 0


def _call_name(key: str) -> str:
    """Return the name of a call: its key without the branch and without the ordinal."""
    return key.rpartition("/")[2].partition("#")[0]


def _since(evidence: dict[str, str]) -> str:
    since = f" since {evidence['since']}" if "since" in evidence else ""
    return f"{since}, at {evidence['site']}" if "site" in evidence else since


def _open_text(group: Group) -> str:
    text = f"{group.open_count} of {counted(group.total, 'item')} are open"
    if group.spawned < group.total:
        text += f", {group.total - group.spawned} are not stored yet"
    return text + (f", {group.failed_count} failed." if group.failed_count else ".")


def _group_evidence(group: Group) -> dict[str, str]:
    counts = {"total": group.total, "open": group.open_count, "failed": group.failed_count}
    return {name: str(count) for name, count in counts.items()}


def _show_command(facts: Facts, wait: Wait, awaited: Awaited) -> str:
    """Return the command that shows what is waited for; if its id is not told, the run itself."""
    if awaited.facts:
        first = awaited.facts[0].task
        group = "tasks" if first.kind is TaskKind.ACTIVITY else "runs"
        return facts.command(f"tenure {group} explain {first.id}")
    if wait.kind != "child":
        return facts.own_command("show")
    try:
        child_id = check.task_id(wait.detail)
    except InvalidArgument:
        return facts.own_command("show")
    # The key of a child run says so, behind its branch.
    group = "runs" if "/child:" in f"/{wait.key}" else "tasks"
    return facts.command(f"tenure {group} show {child_id}")
