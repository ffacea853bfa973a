"""The clocks of servers that tests have in this process, by address.

They jump and stand still, so no difference of clocks tells their time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

clocks: Final[dict[str, Callable[[], int]]] = {}
