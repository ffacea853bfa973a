"""What a run waits for: a signal, a timer, or code that fits its journal."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.core import check
from tenure.core.duration import duration_text
from tenure.core.explain.fact import (
    Facts,
    WaitingReason,
    counted,
    error_evidence,
    error_text,
    shortened,
)
from tenure.core.instant import instant_text
from tenure.core.run.record import TIMED_WAITS, RunProgress, Wait
from tenure.core.run.wake_up import run_of
from tenure.core.task.retry import ErrorInfo
from tenure.errors import InvalidArgument


def run_waits(facts: Facts) -> Iterator[WaitingReason]:
    """Return one reason for each thing that a run waits for, as far as it has told them."""
    run = run_of(facts.task)
    if run.park is not None:
        yield _parked(facts, run, run.park)
        return
    if not run.waits:
        yield _untold(facts, run)
    # What no timer ends is first: somebody may have to do something.
    for wait in sorted(run.waits, key=lambda each: each.kind in TIMED_WAITS):
        yield _wait(facts, run, wait)
    hidden = run.wait_count - len(run.waits)
    if hidden > 0:
        message = f"It waits for {counted(hidden, 'more thing')} that it does not name."
        yield WaitingReason("waiting", message, "", {"for": "more", "count": str(hidden)})


def _parked(facts: Facts, run: RunProgress, error: ErrorInfo) -> WaitingReason:
    at = instant_text(run.wake_at_ms)
    message = (
        f"It is parked: {error_text(error).rstrip('.')}. It is tried again in {_until(facts, run)}."
    )
    advice = (
        "Deploy code that fits, or roll back. To try it at once: "
        f"{facts.own_command('resume')}. To end it: {facts.own_command('terminate')}"
    )
    evidence = {"parkCount": str(run.park_count), "triedAgainAt": at, **error_evidence(error)}
    return WaitingReason("parked", message, advice, evidence)


def _untold(facts: Facts, run: RunProgress) -> WaitingReason:
    if run.wake_at_ms:
        message = f"It waits for a timer that ends in {_until(facts, run)}."
        evidence = {"for": "timer", "wakesAt": instant_text(run.wake_at_ms)}
        return WaitingReason("waiting", message, "Wait for the timer, or send a signal.", evidence)
    message = "It waits for a signal or for a step that it has started."
    advice = "Check the steps that it has started, or send the signal."
    return WaitingReason("waiting", message, advice, {"for": "event"})


def _wait(facts: Facts, run: RunProgress, wait: Wait) -> WaitingReason:
    key = shortened(wait.key)
    evidence = {"for": wait.kind, "key": key}
    since = ""
    if wait.since_ms:
        evidence["since"] = instant_text(wait.since_ms)
        since = f" since {evidence['since']}"
    if wait.detail:
        evidence["detail"] = shortened(wait.detail)
    if wait.kind == "signal":
        message = f"It waits for the signal {key}{since}."
        advice = f"Send it: {facts.own_command('signal')} {key}"
        return WaitingReason("waiting", message, advice, evidence)
    if wait.kind in TIMED_WAITS:
        what = "the timer" if wait.kind == "timer" else "the next attempt of step"
        is_next = bool(run.wake_at_ms) and wait.key == run.wake_key
        until = f" It ends in {_until(facts, run)}." if is_next else ""
        message = f"It waits for {what} {key}{since}.{until}"
        return WaitingReason("waiting", message, "Wait for it, or send a signal.", evidence)
    message = f"It waits for {wait.kind} {key}{since}."
    return WaitingReason("waiting", message, f"Look at it: {_show_command(facts, wait)}", evidence)


def _show_command(facts: Facts, wait: Wait) -> str:
    """Return the command that shows what is waited for; if its id is not told, the run itself."""
    if wait.kind != "child":
        return facts.own_command("show")
    try:
        child_id = check.task_id(wait.detail)
    except InvalidArgument:
        return facts.own_command("show")
    # The key of a child run says so, behind its branch.
    group = "runs" if "/child:" in f"/{wait.key}" else "tasks"
    return facts.command(f"tenure {group} show {child_id}")


def _until(facts: Facts, run: RunProgress) -> str:
    return duration_text(max(0, run.wake_at_ms - facts.now_ms))
