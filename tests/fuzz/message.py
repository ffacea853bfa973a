"""Messages of the protocol with values that are good, on the border, or far beyond it.

Each message is made with a wildness: how likely a field has a strange value instead of one that is
good where it stands. Wild messages are refused at once; the tame ones get far into the server.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from uuid_utils import uuid7

from tenure.core.limits import PAYLOAD_BYTES_MAX
from tenure.v1 import (
    admin_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_service_pb2,
    workflow_service_pb2,
)

NAMESPACE: Final = "fuzz"
# The only namespace that may be disabled by chance.
SIDE: Final = "fuzz/side"
QUEUES: Final = ("q0", "q1")
TYPES: Final = ("work", "other")
IDS_MAX: Final = 300
_UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WILDNESS: Final = (0.0, 0.0, 0.05, 0.2, 0.6, 1.0)
_MANY: Final = 10_000
_ITEMS: Final = 2_000
_TEXT: Final = 100_000
_KIB: Final = 1_024
_MANY_SHARE: Final = 0.01
_HUGE_SHARE: Final = 0.01
# How much of what is large fits into one message, in values or KiB: about 20 MiB. Without a bound
# chance makes lists of large maps, 200 MB of them, and all other calls wait until they are made.
_ROOM: Final = 20_000
_MODULES: Final = (
    workflow_service_pb2,
    task_service_pb2,
    session_service_pb2,
    admin_service_pb2,
    schedule_service_pb2,
)


def methods() -> Iterator[MethodDescriptor]:
    """Give every method of every service."""
    for module in _MODULES:
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


class Pool(msgspec.Struct):
    """Ids and tokens that a server gave out, so that some of them are right."""

    refs: list[tuple[str, int]] = []
    # Runs with the attempts and the workers that hold them.
    held_runs: list[tuple[str, int, str]] = []
    leases: list[tuple[str, str]] = []
    worker_ids: list[str] = []
    tokens: list[str] = []
    task_tokens: list[str] = []
    page_tokens: list[str] = []
    key_ids: list[str] = []
    step_attempt_ids: list[str] = []
    schedule_ids: list[str] = []
    # What the run itself needs to its end.
    spared: set[str] = set()

    def learn(self, message: Message) -> None:
        """Keep what an answer names."""
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                if _is_map(field):
                    continue
                for each in value if is_repeated(field) else (value,):
                    self.learn(each)
            elif field.name == "task_id":
                # Some answers only repeat what was asked for.
                if _UUID.fullmatch(value):
                    self.add(self.refs, (value, getattr(message, "attempt", 0) or 1))
            else:
                self._learn_text(field.name, value)
        names = message.DESCRIPTOR.fields_by_name
        if "worker_id" in names and "token" in names:
            lease: Any = message
            self.add(self.leases, (lease.worker_id, lease.token))

    def _learn_text(self, name: str, value: Any) -> None:
        known = {
            "worker_id": self.worker_ids,
            "token": self.tokens,
            "current_token": self.tokens,
            "task_token": self.task_tokens,
            "next_page_token": self.page_tokens,
            "key_id": self.key_ids,
            "step_attempt_id": self.step_attempt_ids,
            "schedule_id": self.schedule_ids,
        }
        if name in known and value not in self.spared:
            self.add(known[name], value)

    def add(self, values: list[Any], value: Any) -> None:
        """Keep the newest."""
        values.append(value)
        del values[:-IDS_MAX]


def is_repeated(field: FieldDescriptor) -> bool:
    """Tell whether a field holds many values."""
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


_INTEGERS: Final = {
    FieldDescriptor.TYPE_INT32: (0, 1, -1, 7, 1_000, 2**31 - 1, -(2**31)),
    FieldDescriptor.TYPE_INT64: (0, 1, -1, 7, 60_000, 2**31, 2**53, 2**63 - 1, -(2**63)),
    FieldDescriptor.TYPE_UINT32: (0, 1, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 1, 2**64 - 1),
}
_NUMBERS: Final = (0.0, -0.0, -1.0, 1.5, 100.0, 1e308, float("inf"), float("-inf"), float("nan"))
_TEXTS: Final = (
    *("", " ", "x", "\0", "a\0b", "ü", "\ufffd", "\U0010ffff", "\u202e", "\ud7ff", "__proto__"),
    *("..", "/", "a/b/c", "fuzz/", "%00", "' OR 1=1 --", "${x}", "x" * 255, "x" * 256, "ä" * 5_000),
    *("0", "-1", "00000000-0000-0000-0000-000000000000", "tnr_a_b", "QUJD", "\n\r\t", "NaN"),
)
_BYTES: Final = (b"", b"\0", b"{}", b"null", b"\xff\xfe", b"\x80" * 1_000, b"[" * 3_000)
_SECONDS: Final = (0, 1, -1, 60, 315_576_000_000, 2**63 - 1, -(2**63))
_NANOS: Final = (0, 1, -1, 999_999_999, 10**9, 2**31 - 1, -(2**31))


class Maker:
    """Makes messages out of one source of chance."""

    def __init__(self, rng: random.Random, pool: Pool) -> None:
        self.rng = rng
        self._pool = pool
        self._wildness = 0.0
        self._room = 0

    def request(self, descriptor: Descriptor) -> Message:
        """Return a message of a type, as wild as chance wants it."""
        self._wildness = self.rng.choice(_WILDNESS)
        self._room = _ROOM
        made: Message = self._message(descriptor)
        return made

    def _message(self, descriptor: Descriptor) -> Any:
        made: Any = message_factory.GetMessageClass(descriptor)()
        if descriptor.full_name == "google.protobuf.Duration":
            self._fill_duration(made)
            return made
        for field in descriptor.fields:
            self._fill(made, field)
        self._fill_pairs(made, frozenset(descriptor.fields_by_name))
        return made

    def _fill_pairs(self, made: Any, names: frozenset[str]) -> None:
        """Put what belongs together into fields that stand together."""
        pool = self._pool
        if self.rng.random() < self._wildness:
            return
        if pool.refs and {"task_id", "attempt"} <= names:
            made.task_id, made.attempt = self.rng.choice(pool.refs)
        if pool.held_runs and {"run_id", "attempt", "worker_id"} <= names:
            # The newest are held yet.
            held = self.rng.choice(pool.held_runs[-10:])
            made.run_id, made.attempt, made.worker_id = held
        if pool.leases and {"worker_id", "token"} <= names:
            # The newest are alive yet.
            made.worker_id, made.token = self.rng.choice(pool.leases[-10:])

    def _fill_duration(self, made: Any) -> None:
        if self.rng.random() < self._wildness:
            made.seconds, made.nanos = self.rng.choice(_SECONDS), self.rng.choice(_NANOS)
        else:
            made.nanos = 20_000_000

    def _fill(self, made: Any, field: FieldDescriptor) -> None:
        is_wild = self.rng.random() < self._wildness
        if _is_map(field):
            self._fill_map(made, field, is_wild=is_wild)
        elif is_repeated(field):
            for _ in range(self._count(field, is_wild=is_wild)):
                self._add(getattr(made, field.name), field, is_wild=is_wild)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.name in _NEEDED or self.rng.random() < 0.3:
                getattr(made, field.name).CopyFrom(self._message(field.message_type))
        else:
            value = self._scalar(field, is_wild=is_wild)
            if value is not None:
                setattr(made, field.name, value)

    def _is_large(self, share: float, cost: int) -> bool:
        """Tell whether chance wants something large, and take the room that it needs."""
        if self.rng.random() >= share or cost > self._room:
            return False
        self._room -= cost
        return True

    def _count(self, field: FieldDescriptor, *, is_wild: bool) -> int:
        if is_wild and self._is_large(_MANY_SHARE, _ITEMS):
            return _ITEMS
        if field.name in _NEEDED:
            return self.rng.choice((1, 1, 2, 5))
        return self.rng.choice((0, 0, 0, 1, 3))

    def _add(self, values: Any, field: FieldDescriptor, *, is_wild: bool) -> None:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            values.add().CopyFrom(self._message(field.message_type))
            return
        value = self._scalar(field, is_wild=is_wild)
        if value is not None:
            values.append(value)

    def _fill_map(self, made: Any, field: FieldDescriptor, *, is_wild: bool) -> None:
        target = getattr(made, field.name)
        key_field, value_field = field.message_type.fields
        if is_wild and self._is_large(20 * _MANY_SHARE, _MANY):
            target.update({f"k{number}": "v" for number in range(_MANY)})
        elif is_wild:
            for _ in range(3):
                target[self._wild(key_field)] = self._wild(value_field)
        elif self.rng.random() < 0.2:
            target["team"] = "a"

    def _scalar(self, field: FieldDescriptor, *, is_wild: bool) -> Any:
        """Return a value for a field; None leaves it as it is."""
        # Nothing must be done by chance to what others do in the default namespace.
        if field.name == "namespace_id":
            return self._namespace(is_wild=is_wild)
        if field.full_name == "tenure.v1.SetNamespaceRequest.name":
            return SIDE
        if is_wild:
            return self._wild(field)
        if field.full_name == "tenure.v1.Wait.kind":
            # Elsewhere a kind is a number.
            return "sleep"
        if field.full_name == "tenure.v1.ResumeScheduleRequest.mode":
            return self.rng.choice(("", "SKIP"))
        known = _TAME.get(field.name)
        return None if known is None else known(self.rng, self._pool)

    def _namespace(self, *, is_wild: bool) -> str:
        if not is_wild:
            return NAMESPACE
        return self.rng.choice((SIDE, "nowhere", "a/b/c", "\0", "x" * 300, "fuzz/default"))

    def _wild(self, field: FieldDescriptor) -> Any:
        if field.enum_type is not None:
            return self.rng.choice((*field.enum_type.values_by_number, 99, -1, 2**31 - 1))
        match field.type:
            case FieldDescriptor.TYPE_STRING:
                return self._wild_text(field)
            case FieldDescriptor.TYPE_BYTES:
                if self._is_large(_HUGE_SHARE, PAYLOAD_BYTES_MAX // _KIB):
                    return b"x" * (PAYLOAD_BYTES_MAX + 1)
                return self.rng.choice(_BYTES)
            case FieldDescriptor.TYPE_BOOL:
                return self.rng.random() < 0.5
            case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
                return self.rng.choice(_NUMBERS)
            case _:
                return self.rng.choice(_INTEGERS[field.type])

    def _wild_text(self, field: FieldDescriptor) -> str:
        if self._is_large(_HUGE_SHARE, _TEXT // _KIB):
            return "y" * _TEXT
        if self.rng.random() < 0.3:
            # What is right somewhere else.
            known = self.rng.choice(_FOREIGN)(self.rng, self._pool)
            return str(known or "")
        del field
        return self.rng.choice(_TEXTS)


Tame = Callable[[random.Random, Pool], Any]


def _one_of(*values: Any) -> Tame:
    return lambda rng, _: rng.choice(values)


def _known(name: str) -> Tame:
    def choose(rng: random.Random, pool: Pool) -> Any:
        values = getattr(pool, name)
        return rng.choice(values) if values else None

    return choose


def _task_id(rng: random.Random, pool: Pool) -> Any:
    return rng.choice(pool.refs)[0] if pool.refs else None


def _step_attempt_id(rng: random.Random, pool: Pool) -> Any:
    """Return an id that was told, or one of the first entries of a journal."""
    is_told = rng.choice((True, False))
    if is_told and pool.step_attempt_ids:
        return rng.choice(pool.step_attempt_ids)
    task_id = _task_id(rng, pool)
    return None if task_id is None else f"{task_id}.0.{rng.choice((1, 2, '2.1', task_id))}"


def _new_id(rng: random.Random, pool: Pool) -> str:
    del rng, pool
    return str(uuid7())


def _schedule_id(rng: random.Random, pool: Pool) -> str:
    """Return one of a few names, so that calls meet, or an id that the server made."""
    return str(rng.choice((*pool.schedule_ids[-3:], *(f"s{number}" for number in range(5)))))


def _instance_key(rng: random.Random, pool: Pool) -> str:
    del pool
    return rng.randbytes(8).hex()


_EITHER: Final = _one_of(*(False, True))
_OFTEN_OFF: Final = _one_of(*(False, False, True))
_FOREIGN: Final[tuple[Tame, ...]] = (
    _task_id,
    _known("worker_ids"),
    _known("tokens"),
    _known("task_tokens"),
    _known("page_tokens"),
    _known("key_ids"),
    _known("schedule_ids"),
)
# Fields without which a request is refused at once.
_NEEDED: Final = frozenset(
    {
        *("tasks", "items", "options", "hello", "workflow_types", "supported_workflow_types"),
        *("item", "wait", "add", "drain_deadline", "error", "spec", "when", "target"),
    }
)
_TAME: Final[Mapping[str, Tame]] = {
    "task_id": _task_id,
    "add": _task_id,
    "remove": _task_id,
    "new_task_id": _new_id,
    "run_id": _task_id,
    "step_id": _one_of("a", "b", "c"),
    "child_ids": _task_id,
    "open_after": _task_id,
    "group_key": _one_of("", "", "map:work"),
    "group_total": _one_of(0, 3),
    "item": _one_of(0, 1, 2),
    "worker_id": _known("worker_ids"),
    "token": _known("tokens"),
    "task_token": _known("task_tokens"),
    "page_token": lambda rng, pool: rng.choice((*pool.page_tokens[-1:], "", "", "")),
    "key_id": _known("key_ids"),
    "step_attempt_id": _step_attempt_id,
    "schedule_id": _schedule_id,
    "trigger_id": _one_of("t1", "t2", ""),
    "rule": _one_of("0 2 * * *", "*/5 * * * * *", "@daily", "0 0 L * FRI#2", "", ""),
    "every_ms": _one_of(0, 0, 60_000),
    "zone": _one_of("", "UTC", "Europe/Berlin"),
    "overlap": _one_of("", "SKIP", "BUFFER_ONE", "CANCEL_PREVIOUS"),
    "max_catchup": _one_of(0, 100),
    "from_ms": _one_of(1, 1_700_000_000_000),
    "to_ms": _one_of(60_000, 1_700_000_600_000),
    "count": _one_of(0, 1, 100),
    "key": _one_of("charge", "pack"),
    "task_queue": _one_of(*QUEUES),
    "name": _one_of(*QUEUES, "fuzz/new", "fuzz-2"),
    "type": _one_of(*TYPES),
    "workflow_type": _one_of(*TYPES),
    "workflow_types": _one_of(*TYPES),
    "supported_workflow_types": _one_of(*TYPES),
    "instance_key": _instance_key,
    "idempotency_key": lambda rng, _: rng.choice(("", "", f"k{rng.randrange(50)}")),
    "input": _one_of(b"{}", b""),
    "output": _one_of(b"1", b""),
    "message": _one_of("half way"),
    "kind": _one_of(1, 2, 3, 4),
    "category": _one_of(1),
    "mode": _one_of(1, 2),
    "role": _one_of(2, 3, 4),
    "attempt": _one_of(1, 1, 2),
    "priority": _one_of(0, 5, 9),
    "start_to_close_ms": _one_of(60_000),
    "session_no": _one_of(1, 1, 2, 3),
    "window": _one_of(0, 1, 5),
    "max_tasks": _one_of(1, 5),
    "max_concurrent": _one_of(0, 1, 10),
    "page_size": _one_of(0, 1, 100),
    "wants_total": _EITHER,
    "wants_tokens": _EITHER,
    "independent": _EITHER,
    "is_resend": _OFTEN_OFF,
    "is_paused": _OFTEN_OFF,
    "is_disabled": _EITHER,
    "concurrency_max": _one_of(0, 3),
    "version": _one_of("fuzz-1"),
    "progress_percent": _one_of(0.0, 50.0),
}

_GROUP_START: Final = b"\x0b"
_UNKNOWN: Final = b"\xfa\xff\xff\xff\x0f\x03abc"
_BAD_UTF8: Final = b"\x0a\x02\xff\xfe"
_ENDLESS: Final = b"\x0a\xff\xff\xff\xff\x0f"


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return bytes that were a message once."""
    at = rng.randrange(len(data) + 1)
    return rng.choice(
        (
            lambda: data[:at],
            lambda: data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:],
            lambda: data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
            lambda: data + data,
            lambda: data + _UNKNOWN,
            lambda: _BAD_UTF8 + data,
            lambda: data + _BAD_UTF8,
            lambda: data + _ENDLESS,
            lambda: data + _GROUP_START * rng.choice((1, 50, 5_000)),
            lambda: rng.randbytes(rng.choice((1, 10, 1_000))),
        )
    )()
