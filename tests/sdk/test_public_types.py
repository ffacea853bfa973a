"""Whatever a public signature takes or returns can be imported from ``tenure``."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, ParamSpec, TypeVar, get_origin

import pytest

import tenure
import tenure.testing
from tenure.sdk import sync_client
from tenure.sdk.client import client, completion, handle, run_handle, schedules

# Nobody makes these: they are returned, or raised.
_RETURNED = frozenset(
    {
        *("Activity", "AsyncActivity", "SyncActivity", "Call", "RemoteError"),
        "HeartbeatDetails",
        *("Handle", "SyncHandle", "Completion", "SyncCompletion"),
        *("RunHandle", "SyncRunHandle", "Workflow", "Signal"),
        *("Schedules", "SyncSchedules"),
        *("WorkflowContext", "WorkflowLog", "Step", "RunFuture"),
        *("ChildRun", "ExternalRun", "Results"),
        *("SyncWorkflowContext", "SyncWorkflowLog", "SyncStep"),
        *("SyncChildRun", "SyncExternalRun", "SyncResults"),
        *("TestEngine", "SyncTestEngine"),
    }
)
_CALLED = ("__init__", "__call__", "__enter__", "__aenter__", "__get__")
# The names in the annotations of the synchronous client, which loads nothing for them.
_SYNC_NAMES: dict[str, object] = {
    **vars(handle),
    **vars(run_handle),
    **vars(completion),
    **vars(schedules),
    **vars(client),
    **vars(collections.abc),
    **vars(sync_client),
}


def _classes(package: Any) -> Iterator[type]:
    for name in package.__all__:
        found = getattr(package, name)
        if inspect.isfunction(found):
            continue
        # ``activity`` is an object of a class of its own.
        kind = found if inspect.isclass(found) else type(found)
        yield from (each for each in kind.__mro__ if each.__module__.startswith("tenure"))


def _functions(of: type) -> Iterator[Callable[..., Any]]:
    for name, member in vars(of).items():
        is_made = name == "__init__" and of.__name__ not in _RETURNED
        if name.startswith("_") and not (name in _CALLED and (name != "__init__" or is_made)):
            continue
        if isinstance(member, property):
            assert member.fget is not None
            yield member.fget
        elif isinstance(member, staticmethod | classmethod):
            yield member.__func__
        elif inspect.isfunction(member):
            yield member


def _names(annotations: dict[str, Any]) -> Iterator[str]:
    for text in annotations.values():
        tree = ast.parse(text if isinstance(text, str) else "None", mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                # A name in quotes; what is no name is the value of a literal.
                yield node.value


def _is_ours(found: object) -> bool:
    """Tell whether a name of an annotation stands for a type that users may have to write."""
    if found is Any or get_origin(found) is Literal or isinstance(found, TypeVar | ParamSpec):
        return False
    if inspect.isclass(found):
        return found.__module__.startswith("tenure")
    if inspect.ismodule(found):
        return found.__name__.startswith("tenure")
    # An alias, unless it is one of Python's own.
    return getattr(found, "__module__", "") not in ("typing", "collections.abc")


def _places(package: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield where types are named: attributes of classes, methods and functions."""
    for each in _classes(package):
        own = {name: kind for name, kind in inspect.get_annotations(each).items() if name[0] != "_"}
        yield each.__name__, own, vars(sys.modules[each.__module__])
        for method in _functions(each):
            yield method.__qualname__, method.__annotations__, method.__globals__
    for name in package.__all__:
        found = getattr(package, name)
        if inspect.isfunction(found):
            yield name, found.__annotations__, found.__globals__


def _missing(package: Any) -> dict[str, str]:
    public = {id(getattr(each, name)) for each in (tenure, package) for name in each.__all__}
    missing: dict[str, str] = {}
    for place, kinds, scope in _places(package):
        for name in _names(kinds):
            if hasattr(builtins, name) or not name.isidentifier():
                continue
            found = scope.get(name, _SYNC_NAMES.get(name))
            if found is not None and _is_ours(found) and id(found) not in public:
                missing.setdefault(name, place)
    return missing


@pytest.mark.parametrize("package", [tenure, tenure.testing], ids=lambda each: each.__name__)
def test_every_type_of_a_public_signature_is_exported(package: Any) -> None:
    assert _missing(package) == {}


def test_the_word_for_an_attempt_is_attempt() -> None:
    fields = {
        (each.__name__, field)
        for each in _classes(tenure)
        for field in inspect.get_annotations(each)
        if "attempt" in field
    }
    assert {field for _, field in fields} == {"attempt", "max_attempts"}
    assert {("AttemptInfo", "attempt"), ("Info", "attempt"), ("TaskInfo", "attempt")} < fields
