"""What the fields of a request are called in the protocol.

Checks name a field as HTTP does (``startToCloseMs``). Most names of the protocol are the same in
snake case. Those that are not are in the table, and which of them is meant depends on the request.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import Descriptor

_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])[A-Z]")
_OTHER_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "deadlineMs": ("deadline", "drain_deadline"),
    "endsAt": ("ends_at_ms",),
    "every": ("every_ms",),
    "fireAt": ("fire_at_ms",),
    "from": ("from_ms",),
    "leaseDurationMs": ("lease_duration", "lease_duration_ms"),
    "namespace": ("namespace_id", "name"),
    "nextAt": ("next_at_ms",),
    "offset": ("offset_ms",),
    "progressPct": ("progress_percent",),
    "queue": ("task_queue", "name"),
    "runAt": ("run_at_ms",),
    "startedAt": ("started_at_ms",),
    "startsAt": ("starts_at_ms",),
    "to": ("to_ms",),
    "type": ("type", "workflow_type"),
    "types": ("workflow_types", "supported_workflow_types"),
    "waitMs": ("wait",),
    "wakeAt": ("wake_at_ms",),
}


def proto_name(name: str, request: Descriptor | None) -> str:
    """Return what one field is called in the protocol, in this request if it is known."""
    plain = _CAPITAL.sub(lambda capital: f"_{capital[0]}", name).lower()
    others = _OTHER_NAMES.get(name, ())
    if request is not None:
        known = _names(request)
        for each in (*others, plain):
            if each in known:
                return each
    return others[0] if others else plain


@functools.cache
def _names(request: Descriptor) -> frozenset[str]:
    """Return the names of all fields of a message, also of those inside it."""
    return frozenset(_walk(request, set()))


def _walk(message: Descriptor, seen: set[str]) -> Iterator[str]:
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    for field in message.fields:
        yield field.name
        if field.message_type is not None:
            yield from _walk(field.message_type, seen)
