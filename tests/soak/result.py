"""A row of the table: what was promised, what was measured, whether it held."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec


class Result(msgspec.Struct, frozen=True):
    """One promise and its measurement; ``held`` is ``None`` for what is only reported."""

    name: str
    promised: str
    measured: str
    held: bool | None = None
    details: tuple[str, ...] = ()


Scenario = Callable[[bool], Coroutine[Any, Any, list[Result]]]
"""Takes whether to be small."""
