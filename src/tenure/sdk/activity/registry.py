"""The activities that a worker can run, by the names of their types."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from tenure.sdk.activity.definition import Activity, signature_of, undecorated


class Registry:
    """The activities of a worker, by the names of their types."""

    def __init__(self, given: Iterable[object], *, may_be_empty: bool = False) -> None:
        """Take activities, and objects with methods that are activities.

        Raises ``TypeError`` for anything else, ``ValueError`` when two have one name or, unless it
        ``may_be_empty``, when there is none.
        """
        self._by_type: dict[str, Activity[..., Any]] = {}
        for each in given:
            for activity in _activities_of(each):
                self._add(activity)
        if not self._by_type and not may_be_empty:
            raise ValueError("A worker needs at least one activity: Worker(activities=[greet]).")

    @property
    def types(self) -> list[str]:
        """Every type that can be run, aliases included."""
        return sorted(self._by_type)

    @property
    def activities(self) -> list[Activity[..., Any]]:
        """Every activity once."""
        return list({id(each): each for each in self._by_type.values()}.values())

    def find(self, type: str) -> Activity[..., Any] | None:
        """Return the activity for a type."""
        return self._by_type.get(type)

    def get(self, type: str) -> Activity[..., Any]:
        """Return the activity for a type; a ``LookupError`` lists the known types."""
        found = self.find(type)
        if found is None:
            raise LookupError(
                f"This worker has no activity {type!r}. It has: {', '.join(self.types)}."
            )
        return found

    def _add(self, activity: Activity[..., Any]) -> None:
        if activity.is_method and activity.instance is None:
            owner = activity.__qualname__.rpartition(".")[0]
            message = f"{activity.__qualname__} is a method. Register an instance: {owner}(…)."
            raise TypeError(message)
        _check_process(activity)
        # Wrong types are found when the worker starts, not when the first task arrives.
        signature_of(activity)
        for name in (activity.name, *activity.traits.aliases):
            other = self._by_type.get(name)
            if other is not None:
                message = (
                    f"Two activities are named {name!r}: {other.__module__}.{other.__qualname__} "
                    f"and {activity.__module__}.{activity.__qualname__}. Give one of them "
                    "another name: @activity(name=…)."
                )
                raise ValueError(message)
            self._by_type[name] = activity


def _check_process(activity: Activity[..., Any]) -> None:
    if activity.traits.where != "process":
        return
    name = activity.__qualname__
    if activity.is_method:
        message = (
            f"{name} is a method, which a new process cannot have. Make it a function, or use "
            'executor="thread".'
        )
        raise TypeError(message)
    if activity.__module__ == "__main__" or "<locals>" in name:
        message = (
            f"{name} of {activity.__module__} cannot be found by a new process. Move it to the "
            "top level of a module that can be imported."
        )
        raise TypeError(message)


def _activities_of(given: object) -> list[Activity[..., Any]]:
    if isinstance(given, Activity):
        return [given]
    if isinstance(given, type):
        raise TypeError(
            f"{given.__qualname__} is a class. Register an instance: {given.__name__}(…)."
        )
    found = {
        name: each.bound(given)
        for owner in reversed(type(given).__mro__)
        for name, each in vars(owner).items()
        if isinstance(each, Activity) and inspect.getattr_static(type(given), name) is each
    }
    if not found:
        raise TypeError(undecorated(given))
    return list(found.values())
