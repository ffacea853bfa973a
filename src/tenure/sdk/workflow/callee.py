"""What a body may call elsewhere: wrong callees are refused with the call that was meant."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable

from tenure.sdk.activity.definition import Activity, check_activity
from tenure.sdk.workflow.definition import Workflow, check_workflow


def check_executed(given: object) -> None:
    """Raise ``TypeError`` if what ``ctx.execute`` is to run is not an activity."""
    _check_activity(given, "ctx.execute(greet, name), not ctx.execute(greet(name))")


def check_mapped(given: object, items: object) -> None:
    """Raise ``TypeError`` if ``ctx.map`` cannot run this for each of the items."""
    _check_activity(given, "ctx.map(greet, names), not ctx.map(greet(name), names)")
    if isinstance(items, AsyncIterable):
        kind = type(items).__name__
        message = f"ctx.map takes a list or another iterable, not a value of type {kind}"
        raise TypeError(f"{message}: collect it in a step first, and map over the list")


def check_child(given: object) -> None:
    """Raise ``TypeError`` if what ``ctx.child`` is to start is not a workflow."""
    if isinstance(given, Activity):
        name = given.name
        raise TypeError(f"{name} is an activity: write ctx.execute({name}, …)")
    if isinstance(given, Workflow) or callable(given):
        check_workflow(given)
        return
    message = f"Expected a workflow, not a value of type {_kind_of(given)}"
    raise TypeError(f"{message}. Give the workflow and its arguments: ctx.child(sell, item).")


def _check_activity(given: object, right: str) -> None:
    if isinstance(given, Workflow):
        name = given.name
        raise TypeError(f"{name} is a workflow: write ctx.child({name}, …)")
    if isinstance(given, Activity) or callable(given):
        check_activity(given)
        return
    raise TypeError(f"Expected an activity, not a value of type {_kind_of(given)}: write {right}")


def _kind_of(given: object) -> str:
    if inspect.iscoroutine(given):
        # Nobody will await it, and Python would warn of that, too.
        given.close()
    return type(given).__name__
