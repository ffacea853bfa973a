"""Makes requests that get further: what exists is put where something made up would be refused."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec
import schemathesis

_SHARE: Final = 0.6
_IDS_MAX: Final = 200
_NAMES: Final = ("q0", "q1", "q2", "work", "default", "x" * 255, "x" * 256, "ü", "..", "a b", "")
_INSTANTS: Final = ("2030-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z")
_RULES: Final = ("0 2 * * *", "@daily", "0 0 L * FRI#2", "* * * * *", "15W * * * *", "0 0 30 2 *")
_SCHEDULES: Final = ("s0", "s1", "s2")
_NUMBERS: Final = (0, 1, -1, 60_000, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 1e308)
_ODD_HEADERS: Final = (
    ("Tenure-Namespace", "default"),
    ("Tenure-Namespace", "a/b/c"),
    ("Tenure-Namespace", "\xff" * 300),
    ("Last-Event-ID", "x:1"),
    ("Last-Event-ID", "-1" * 200),
    ("X-Request-Id", "\xe4" * 300),
    ("Content-Type", "text/plain"),
    ("Content-Type", "application/json; charset=utf-16"),
    ("Content-Encoding", "gzip"),
    ("Accept", "image/png"),
    ("Expect", "x"),
)


class _Task(msgspec.Struct, rename="camel"):
    task_id: str = ""


class _Key(msgspec.Struct, rename="camel"):
    key_id: str = ""


class _Answer(_Task, rename="camel"):
    key: _Key = msgspec.field(default_factory=_Key)
    next_page_token: str = ""


class Pool(msgspec.Struct):
    """What exists on the server, as far as it may be changed or ended by chance."""

    task_ids: list[str] = []
    worker_ids: list[str] = []
    key_ids: list[str] = []
    page_tokens: list[str] = []
    # The only namespace that a request may disable by chance.
    side: str = "fuzz/side"

    def learn(self, status: int, body: bytes) -> None:
        """Keep the ids that an answer names."""
        if status not in {200, 201}:
            return
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.MsgspecError:
            return
        for found, values in (
            (answer.task_id, self.task_ids),
            (answer.key.key_id, self.key_ids),
            (answer.next_page_token, self.page_tokens),
        ):
            if found:
                values.append(found)
                del values[:-_IDS_MAX]

    def path(self, name: str) -> list[str]:
        """Return what may stand in a path under this name."""
        tenant, _, workspace = self.side.partition("/")
        known = {
            "taskId": self.task_ids,
            "workerId": self.worker_ids,
            "keyId": self.key_ids,
            # An empty one is another path.
            "scheduleId": [*_SCHEDULES, *filter(None, _NAMES[-3:])],
            "queue": list(_NAMES[:5]),
            "tenant": [tenant],
            "workspace": [workspace],
        }
        return known.get(name, [])

    def fields(self) -> dict[str, list[Any]]:
        """Return what may stand in a query or a body under these names."""
        return {
            "namespace": ["default", "default/default", self.side, "nowhere", "", "a/b/c"],
            "queue": list(_NAMES),
            "type": list(_NAMES),
            "name": [*_NAMES, self.side, "fuzz/new"],
            "pageToken": [*self.page_tokens, "", "x"],
            "pageSize": [0, 1, 100, -1, 2**63],
            "wait": ["10ms", "0s", "1m", "61s", "-1s"],
            "waitMs": [0, 1, 20],
            "kind": ["task", "task,worker", "queue,namespace", ","],
            "state": ["PENDING", "SUCCEEDED", "pending"],
            "taskId": [*self.task_ids[:4], "00000000-0000-0000-0000-000000000000"],
            "scheduleId": [*_SCHEDULES, ""],
            "triggerId": ["t1", "t2", ""],
            "rule": list(_RULES),
            "every": [60_000, "5m", "x", *_NUMBERS],
            "offset": [0, "1s", *_NUMBERS],
            "zone": ["UTC", "Europe/Berlin", "../etc/passwd", ""],
            "overlap": ["SKIP", "BUFFER_ONE", "skip"],
            "mode": ["CATCH_UP", "SKIP", "skip"],
            "maxCatchup": [0, 100, *_NUMBERS],
            "count": [1, 100, *_NUMBERS],
            **{name: list(_INSTANTS) for name in ("startsAt", "endsAt", "from", "to", "after")},
            "newTaskId": [*self.task_ids[:4], "01890000-0000-7000-8000-000000000001"],
            "idempotencyKey": ["k", "k2"],
            "labels": [{}, {"team": "a"}, {"__proto__": "x"}, {f"k{n}": "v" for n in range(65)}],
            "resources": [{}, {"gpu": "1"}],
            "version": ["1", ""],
            "startToCloseMs": [1, 60_000, *_NUMBERS],
            "deadlineMs": [1, *_NUMBERS],
            "attempt": [1, 2, *_NUMBERS],
            "runAt": list(_INSTANTS),
            "role": ["admin", "client", "worker", "viewer"],
            "namespaces": [[], [self.side], ["default", "default"], ["x"] * 1_000],
            "expiresInMs": [0, 1, 1_000, *_NUMBERS],
            "outcome": ["SUCCEEDED", "FAILED", "CANCELLED"],
            "encoding": ["json", "msgpack", "\0"],
            "inputBase64": ["", "eA==", "eA=", "-_=="],
        }


def sharpen(case: schemathesis.Case[Any], pool: Pool, rng: random.Random) -> None:
    """Put things that exist into a request, here and there."""
    for name in case.path_parameters or {}:
        known = pool.path(name)
        if known and rng.random() < _SHARE:
            case.path_parameters[name] = rng.choice(known)
    fields = pool.fields()
    _sharpen_fields(case.query, fields, rng)
    body = case.body
    if isinstance(body, dict):
        _sharpen_fields(body, fields, rng)
        if {"type", "queue"} <= body.keys() and rng.random() < _SHARE:
            case.body = _good_task(body, rng)
        if "target" in body and rng.random() < _SHARE:
            case.body = _good_schedule(body, rng)
    if rng.random() < 0.1:
        name, value = rng.choice(_ODD_HEADERS)
        case.headers[name] = value


def _sharpen_fields(found: Any, fields: dict[str, list[Any]], rng: random.Random) -> None:
    if not isinstance(found, dict):
        return
    for name in list(found):
        if name not in fields:
            continue
        lot = rng.random()
        if lot < _SHARE / 2:
            found[name] = rng.choice(fields[name])
        elif lot < _SHARE:
            del found[name]


def _good_task(body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a task that can be taken in, with the strange parts of another."""
    kept = {name: body[name] for name in body if rng.random() < 0.3}
    if "inputBase64" in kept:
        kept.pop("input", None)
    return {**kept, "type": "work", "queue": rng.choice(("q0", "q1")), "startToCloseMs": 60_000}


def _good_schedule(body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a schedule that can be stored, with the strange parts of another."""
    kept = {name: body[name] for name in body if rng.random() < 0.2}
    for name in ("rule", "every", "offset", "zone"):
        kept.pop(name, None)
    target = {"type": "work", "queue": rng.choice(("q0", "q1")), "startToCloseMs": 60_000}
    when: dict[str, Any] = rng.choice(({"rule": "0 2 * * *"}, {"every": "1h"}))
    return {**kept, **when, "target": target}
