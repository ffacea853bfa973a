"""What all bodies of requests have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, UnsetType

from tenure.core import limits

T = TypeVar("T")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Duration = Annotated[int, Meta(ge=1, le=limits.DURATION_MS_MAX)]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A body; unknown fields are refused."""


class EmptyBody(Body, frozen=True):
    """Nothing, or an empty object."""


class DryRunBody(Body, frozen=True):
    """Whether only to tell what would happen."""

    dry_run: Annotated[
        bool, Meta(description="Change nothing, and answer with the consequences")
    ] = False


def given_or(value: T | UnsetType, default: T) -> T:
    """Return the client's value, or else the default."""
    return default if isinstance(value, UnsetType) else value
