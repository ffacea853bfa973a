"""What a deliberate bug is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tests.sim.faults import Faults

Function = Any  # of any signature: that of what it replaces


class Mutant(msgspec.Struct, frozen=True):
    """One bug: what it breaks, where, how, and under which faults it must show."""

    name: str
    owner: Any
    attribute: Any
    change: Callable[[Function], Function]
    faults: Faults
