"""The parts of a service: how it is made, and what each of its methods needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from tenure.api.guard.rate_limit import Allowance
from tenure.api.readiness import Readiness
from tenure.api.rpc.outcome import Count
from tenure.api.rpc.permission import MethodRule
from tenure.api.rpc.served.served_address import ServedAddresses
from tenure.engine.engine import Engine


@dataclass(frozen=True)
class ServiceDependencies:
    """What the services of one server share."""

    engine: Engine
    allowance: Allowance
    readiness: Readiness
    count: Count
    served: ServedAddresses


class EngineService:
    """Translates, submits one command or asks one query, and translates back."""

    def __init__(self, shared: ServiceDependencies) -> None:
        """Use an engine, with these limits."""
        self._engine = shared.engine
        self._allowance = shared.allowance

    def close(self) -> None:
        """End the open streams, if there are any: the server stops."""


@dataclass(frozen=True)
class ServiceSpec:
    """One row of the table of services; the names of methods are separated by spaces."""

    descriptor: ServiceDescriptor
    make: Callable[[ServiceDependencies], EngineService]
    # The generated function, without types.
    add_to_server: Callable[[Any, Any], None]
    rules: dict[MethodRule, str] = field(default_factory=dict)
    # They need no key.
    open_methods: str = ""
    # They bring new work, which is refused when the server is overloaded.
    new_work: str = ""

    def paths(self, methods: str) -> Iterator[str]:
        """Return the full names of methods, as in a call."""
        return (f"/{self.descriptor.full_name}/{name}" for name in methods.split())
