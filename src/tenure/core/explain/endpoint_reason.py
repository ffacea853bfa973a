"""Why no endpoint takes a task that only endpoints could run."""

from __future__ import annotations

from tenure.core.endpoint.record import Endpoint, Pause
from tenure.core.explain.fact import Facts, WaitingReason, instants, shortened


def endpoint_reasons(facts: Facts, nobody: list[WaitingReason]) -> list[WaitingReason]:
    """Return why the endpoints of the type do not take the task now; nothing if one could.

    Without any of them it is what is said when there is ``nobody``.
    """
    if not facts.endpoints:
        return nobody
    found = [_reason(facts, each) for each in facts.endpoints]
    return [] if None in found else [each for each in found if each is not None]


def _reason(facts: Facts, endpoint: Endpoint) -> WaitingReason | None:
    name, error = endpoint.name, shortened(endpoint.last_error)
    evidence = {"endpoint": name, "failureCount": str(endpoint.failure_count)}
    if error:
        evidence |= {"lastError": error, **instants(lastErrorAt=endpoint.last_error_at_ms)}
    if endpoint.is_deleting:
        advice = f"Create another one: {facts.command('tenure endpoints create')}"
        return WaitingReason("endpoint_deleting", f"Endpoint {name} is deleted.", advice, evidence)
    if endpoint.pause is not None:
        why = (
            "it has answered that it is gone" if endpoint.pause is Pause.GONE else "by an operator"
        )
        advice = f"Resume it: {facts.command(f'tenure endpoints resume {name}')}"
        message = f"Endpoint {name} is paused: {why}."
        return WaitingReason("endpoint_paused", message, advice, evidence)
    if endpoint.is_held(facts.now_ms):
        until = instants(heldUntil=endpoint.held_until_ms)
        message = f"Endpoint {name} gets nothing before {until['heldUntil']}. {error}".rstrip()
        advice = f"Try it: {facts.command(f'tenure endpoints test {name}')}"
        return WaitingReason("endpoint_held", message, advice, {**evidence, **until})
    held_count = facts.endpoint_held.get(endpoint.id, 0)
    if held_count < endpoint.spec.concurrency:
        return None
    message = f"Endpoint {name} is busy: it has {held_count} attempts, as many as it may."
    advice = "It gets the task when one has ended. To push more at once, raise its concurrency."
    evidence["heldCount"] = str(held_count)
    return WaitingReason("endpoint_busy", message, advice, evidence)
