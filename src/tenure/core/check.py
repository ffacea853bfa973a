"""Checks of input from outside: each returns the valid value or names the invalid field.

A refusal says what is allowed and never repeats the value, which may be huge, secret or crafted for
a log. Values are `object`, because JSON may hold anything where a string is expected.
"""

import math
import re
from collections.abc import Mapping
from typing import NoReturn

from tenure.core import limits
from tenure.errors import InvalidArgument, PayloadTooLarge

# A URL path would treat "." and ".." as folders.
_NAME = re.compile(rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._:-]{{1,{limits.NAME_LENGTH_MAX}}}")
# What is left of a UUID when each digit becomes an "h"; twice as fast as a regular expression.
_UUID_FORM = b"hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh"
_UUID_BYTES = bytes(
    ord("h") if each in b"0123456789abcdef" else each if each in b"-" else ord("x")
    for each in range(256)
)
# Control, zero-width and direction characters: two labels that look equal must be equal.
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
# Would change the prototype of the object that a browser reads labels into.
_RESERVED_LABEL = "__proto__"

# Each request repeats a few names; a known one costs a hash lookup. Only valid ones are kept, so
# that nobody can fill the memory with megabytes of invalid ones.
_good_names: set[str] = set()
_good_worker_ids: set[str] = set()
_good_namespaces: dict[str, str] = {}


def _refuse(field: str, problem: str) -> NoReturn:
    raise InvalidArgument(f"{field} {problem}", field=field)


def name(value: object, field: str) -> str:
    """Check a name: a queue, a type, a key, an id that the user chose."""
    if isinstance(value, str):
        if value in _good_names:
            return value
        if _NAME.fullmatch(value):
            if len(_good_names) >= limits.NAMES_REMEMBERED_MAX:
                _good_names.clear()
            _good_names.add(value)
            return value
    _refuse(field, f"must have 1 to {limits.NAME_LENGTH_MAX} characters of A-Z a-z 0-9 . _ : -")


def worker_name(value: object, field: str) -> str:
    """Check the name of a worker: a name, or ``name@queue`` of one that serves several queues."""
    if not isinstance(value, str) or len(value) > limits.NAME_LENGTH_MAX:
        _refuse(field, f"must be a text of at most {limits.NAME_LENGTH_MAX} characters")
    own, at, queue = value.partition("@")
    name(own, field)
    if at:
        name(queue, field)
    return value


def namespace(value: object, field: str = "namespace") -> str:
    """Check a namespace and return it as `tenant/workspace`; a bare `x` is `x/default`."""
    if not isinstance(value, str):
        _refuse(field, "must be a name or tenant/workspace")
    known = _good_namespaces.get(value)
    if known is not None:
        return known
    tenant, slash, workspace = value.partition("/")
    canonical = f"{name(tenant, field)}/{name(workspace, field) if slash else 'default'}"
    if len(_good_namespaces) >= limits.NAMES_REMEMBERED_MAX:
        _good_namespaces.clear()
    _good_namespaces[value] = canonical
    return canonical


def task_id(value: object, field: str = "task_id") -> str:
    """Check a task id: the text of a UUID in its canonical form, lower case with hyphens."""
    if (
        isinstance(value, str)
        and value.isascii()
        and value.encode().translate(_UUID_BYTES) == _UUID_FORM
    ):
        return value
    _refuse(field, "must be a UUID in lower case with hyphens")


def worker_id(value: object, field: str = "workerId") -> str:
    """Check a worker id, which has the form of a task id and occurs in many calls."""
    if isinstance(value, str) and value in _good_worker_ids:
        return value
    checked = task_id(value, field)
    if len(_good_worker_ids) >= limits.WORKER_IDS_REMEMBERED_MAX:
        _good_worker_ids.clear()
    _good_worker_ids.add(checked)
    return checked


def payload(data: object, field: str, *, bytes_max: int = limits.PAYLOAD_BYTES_MAX) -> bytes:
    """Check the size of an input, output, details or signal."""
    if not isinstance(data, bytes):
        _refuse(field, "must be bytes")
    if len(data) > bytes_max:
        message = f"{field} has {len(data)} bytes; at most {bytes_max} are allowed"
        raise PayloadTooLarge(message, limit=bytes_max)
    return data


def text(value: object, field: str, *, bytes_max: int) -> str:
    """Check free text: every database can store it, and it can be written as UTF-8."""
    if not isinstance(value, str):
        _refuse(field, "must be a string")
    # There are never more characters than bytes, so a huge string need not be encoded.
    if len(value) > bytes_max:
        _refuse(field, f"must have at most {bytes_max} bytes")
    if "\0" in value:
        _refuse(field, "must not contain NUL")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        _refuse(field, "must be valid Unicode without unpaired surrogates")
    if size > bytes_max:
        _refuse(field, f"must have at most {bytes_max} bytes")
    return value


def labels(mapping: object, field: str = "labels") -> dict[str, str]:
    """Check labels: few entries, with a name as key and short visible text as value."""
    if not isinstance(mapping, Mapping):
        _refuse(field, "must be an object of strings")
    if len(mapping) > limits.LABELS_MAX:
        _refuse(field, f"must have at most {limits.LABELS_MAX} entries")
    return {_label_key(key, field): _label_value(key, mapping[key], field) for key in mapping}


def _label_key(key: object, field: str) -> str:
    if key == _RESERVED_LABEL:
        _refuse(field, f"must not use the key {_RESERVED_LABEL}")
    return name(key, field)


def _label_value(key: str, value: object, field: str) -> str:
    checked = text(value, f"{field}.{key}", bytes_max=limits.LABEL_BYTES_MAX)
    if _INVISIBLE.search(checked):
        _refuse(f"{field}.{key}", "must not contain control or invisible characters")
    return checked


def integer(value: object, field: str, minimum: int, maximum: int) -> int:
    """Check a whole number; `True` and `1.0` are refused."""
    if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum:
        return value
    _refuse(field, f"must be a whole number from {minimum} to {maximum}")


def number(value: object, field: str, minimum: float, maximum: float) -> float:
    """Check a finite number; NaN fails every comparison, infinity the one with a finite bound."""
    assert math.isfinite(minimum)
    assert math.isfinite(maximum)
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(field, "must be a number")
    if minimum <= value <= maximum:
        return float(value)
    _refuse(field, f"must be a number from {minimum} to {maximum}")


def duration_ms(value: object, field: str, *, minimum: int = 1) -> int:
    """Check a duration in milliseconds."""
    return integer(value, field, minimum, limits.DURATION_MS_MAX)


def instant_ms(value: object, field: str) -> int:
    """Check an instant in milliseconds since 1970, up to the year 9999."""
    return integer(value, field, 0, limits.INSTANT_MS_MAX)


def attempt(value: object, field: str = "attempt") -> int:
    """Check an attempt number; the first is 1."""
    return integer(value, field, 1, limits.ATTEMPT_MAX)


def priority(value: object, field: str = "priority") -> int:
    """Check a priority: 0 is first, 9 is last."""
    return integer(value, field, limits.PRIORITY_MIN, limits.PRIORITY_MAX)


def page_size(value: object, field: str = "page_size") -> int:
    """Check a page size and return the one that is used: 0 means 20, more than 100 means 100."""
    size = integer(value, field, 0, 2**63 - 1)
    return min(size, limits.PAGE_SIZE_MAX) or limits.PAGE_SIZE_DEFAULT
