"""The workflows that a worker can run, by the names of their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenure.sdk.workflow.definition import Workflow


class WorkflowRegistry:
    """The workflows of a worker, by the names of their types."""

    def __init__(self, given: Iterable[object] = ()) -> None:
        """Take workflows; raise ``TypeError`` for anything else, ``ValueError`` for two names."""
        self._by_type: dict[str, Workflow[..., Any]] = {}
        for each in given:
            self._add(each)

    @property
    def types(self) -> list[str]:
        """Every type that can be run."""
        return sorted(self._by_type)

    @property
    def workflows(self) -> list[Workflow[..., Any]]:
        """Every workflow."""
        return list(self._by_type.values())

    def find(self, type: str) -> Workflow[..., Any] | None:
        """Return the workflow for a type."""
        return self._by_type.get(type)

    def _add(self, given: object) -> None:
        if not isinstance(given, Workflow):
            name = getattr(given, "__qualname__", type(given).__qualname__)
            raise TypeError(f"{name} is not a workflow. Decorate the function with @workflow.")
        # Wrong types are found when the worker starts, not when the first run arrives.
        _ = given.signature
        other = self._by_type.get(given.name)
        if other is not None:
            message = (
                f"Two workflows are named {given.name!r}: {other.__module__}.{other.__qualname__} "
                f"and {given.__module__}.{given.__qualname__}. Give one of them another name: "
                "@workflow(name=…)."
            )
            raise ValueError(message)
        self._by_type[given.name] = given


def split(given: Iterable[object]) -> tuple[list[object], list[Workflow[..., Any]]]:
    """Return a list of activities and workflows as two."""
    everything = list(given)
    workflows = [each for each in everything if isinstance(each, Workflow)]
    return [each for each in everything if not isinstance(each, Workflow)], workflows
