"""One row of what is expected of a call, and the requests that are made from it.

A template is JSON in which ``$name`` stands for an id of a cast. So one template gives the request
of a namespace, the same with one id of somebody else, and the same with one that nobody has.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

_PLACEHOLDER: Final = re.compile(r"\$(\w+)")
READERS: Final = "viewer client worker admin"
SUBMITTERS: Final = "client admin"
WORKERS: Final = "worker admin"
ADMINS: Final = "admin"
OK: Final = "ok"


class Where(enum.Enum):
    """What a call is about, as far as keys of some namespaces are concerned."""

    # One namespace, which the request names: another one's is not found.
    NAMESPACE = "namespace"
    # Whatever the caller may see: nobody is refused, and nobody sees what is not theirs.
    OWN = "own"
    # The whole server: keys of some namespaces are refused.
    WHOLE = "whole"
    # Nothing that belongs to anybody.
    NOWHERE = "nowhere"
    # No key is asked for.
    OPEN = "open"
    # No key is accepted: only the task token of an attempt.
    TASK_TOKEN = "task token"


class Row(NamedTuple):
    """What is expected of one RPC or route, written down without a look at the server's tables."""

    roles: str
    # The messages of an RPC, or path, query and body of a route.
    template: Any
    where: Where = Where.NAMESPACE
    # What those who may get for the template as it stands.
    answer: str = OK
    # Whether it changes what it names: then it needs a cast of its own.
    is_change: bool = False


@dataclass(frozen=True)
class Cast:
    """What there is in one namespace, by the names that templates know."""

    namespace: str
    queue: str
    pending: str
    held: str
    paused: str
    finished: str
    run: str
    paused_run: str
    finished_run: str
    stepped_run: str
    step_attempt: str
    held_run: str
    worker: str
    session_worker: str
    key: str
    endpoint: str
    task_token: str
    task_cursor: str
    run_cursor: str
    step_cursor: str
    worker_cursor: str
    queue_cursor: str
    schedule: str
    paused_schedule: str
    schedule_cursor: str
    fire_cursor: str
    endpoint_cursor: str
    # Of one's own: not used by anybody yet. Of somebody else: in use there.
    new_task: str
    new_idempotency: str
    new_instance: str
    new_name: str
    new_schedule: str

    def texts(self) -> Iterator[str]:
        for field in fields(self):
            if not field.name.startswith("new_"):
                yield getattr(self, field.name)


class Place(NamedTuple):
    """Where an id stands in a template: its path, and its name."""

    path: str
    name: str


def places(template: Any, path: str = "") -> Iterator[Place]:
    """Return where ids stand in a template; the items of a list stand in one place."""
    if isinstance(template, dict):
        for key, value in template.items():
            yield from places(value, f"{path}.{key}" if path else key)
    elif isinstance(template, list | tuple):
        for value in template:
            yield from places(value, path)
    elif isinstance(template, str):
        for found in _PLACEHOLDER.finditer(template):
            yield Place(path, found[1])


def filled(template: Any, cast: Cast, other: tuple[Place, Cast] | None = None) -> Any:
    """Return a template with the ids of a cast, and in one place that of another one."""
    return _filled(template, "", cast, other)


def _filled(template: Any, path: str, cast: Cast, other: tuple[Place, Cast] | None) -> Any:
    if isinstance(template, dict):
        return {
            key: _filled(value, f"{path}.{key}" if path else key, cast, other)
            for key, value in template.items()
        }
    if isinstance(template, list | tuple):
        return [_filled(value, path, cast, other) for value in template]
    if not isinstance(template, str):
        return template

    def value(found: re.Match[str]) -> str:
        is_other = other is not None and other[0] == (path, found[1])
        source = other[1] if other is not None and is_other else cast
        return str(getattr(source, found[1]))

    return _PLACEHOLDER.sub(value, template)


class Answer(NamedTuple):
    """What came back: the code, and all of it as text in which ids are not told apart."""

    code: str
    text: str
    raw: str


_ALIKE: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"tnr_[a-z2-7]{16}_[\w-]{43}"), "KEY"),
    (re.compile(r"\b[a-z2-7]{16}\b"), "KEY_ID"),
    (re.compile(r"\bqueue-\d+\b"), "QUEUE"),
    (re.compile(r"\bschedule-\d+\b"), "SCHEDULE"),
    (re.compile(r"whsec_[\w+/=]+"), "SECRET"),
    (re.compile(r"\b(acme/default|other/default|nobody/here)\b"), "NAMESPACE"),
    (re.compile(r"\bnew-\d+\b"), "NEW"),
    # Where a listener to events begins.
    (re.compile(r"\bID:\d+\b"), "POSITION"),
)


def answer(code: str, raw: str) -> Answer:
    text = raw
    for pattern, shown in _ALIKE:
        text = pattern.sub(shown, text)
    return Answer(code, text, raw)


def dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
