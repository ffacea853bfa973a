"""The statements that are a transaction of their own, instead of those of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CLAIM: Final = "claim_tasks"
PEEK: Final = "peek_tasks"
"""Reads the same lines as a claim and locks nothing."""
INSERT: Final = "insert_tasks"
FENCED: Final[Mapping[str, str]] = {INSERT: "insert_alone", "update_tasks": "update_alone"}
"""The same writes, also fenced by the worker, the queue's pause and limit, and the time."""
