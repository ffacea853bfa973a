"""Strict JSON: a body that is not exactly one valid value is refused, and the field is named.

msgspec refuses unknown fields, wrong types, numbers out of range, NaN, a byte order mark and
unpaired surrogates. Three things that it accepts are checked here: invalid UTF-8 and unreadable
numbers inside a payload that is stored undecoded; the depth of such a payload; and keys that occur
twice in one object, where readers would choose different ones.
"""

from __future__ import annotations

import functools
import json
import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from tenure.core import check, limits
from tenure.errors import InvalidArgument

T = TypeVar("T")
Members = tuple[str, object]
_decode_any: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_skip: Final = msgspec.json.Decoder(msgspec.Raw).decode
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
# One level deeper, and (as a signed byte) one level up.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(each for each in range(256) if each not in b"[{]}")
# A number without either is below 10 to the 299th.
_SUSPICIOUS: Final = re.compile(rb"[0-9]{200}|[eE][+-]?[0-9]{3}")
_PLACE: Final = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_PATH: Final = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")


# By the type of a body; the table of operations has a few types.
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    made = _decoders.get(kind)
    if made is None:
        made = _decoders[kind] = msgspec.json.Decoder(kind)
    return made


def peek(data: bytes, kind: type[T]) -> T:
    """Return some fields of a body that are needed before it is checked as a whole."""
    _text(data)
    return _read(data, kind)


def decode(data: bytes, kind: type[T]) -> T:
    """Return a body as a value of ``kind``; its payloads are valid JSON."""
    text = _text(data)
    value = _read(data, kind)
    for field, payload in _payloads(value, ""):
        check_payload(payload, field or "body")
    if not _has_unique_keys(data):
        _check_unique(_members(text), "")
    return value


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        _refuse("body", "must be UTF-8")


def _read(data: bytes, kind: type[T]) -> T:
    try:
        return _decoder(kind).decode(data)
    except msgspec.ValidationError as error:
        raise refusal(error) from error
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"The body is not JSON. {error}", field="body") from error
    except RecursionError:
        _refuse_depth("body")


def is_json(data: bytes) -> bool:
    """Return whether stored bytes can be shown as JSON."""
    try:
        data.decode()
        _skip(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def check_payload(payload: bytes, field: str) -> None:
    """Refuse a payload that is too large, or that some reader could not read.

    It was already skipped as valid JSON without decoding it; it is not decoded here either, unless
    a number may be out of range.
    """
    check.payload(payload, field)
    if _SUSPICIOUS.search(payload):
        try:
            _decode_any(payload)
        except msgspec.DecodeError as error:
            problem = str(error).partition(" - at ")[0]
            raise InvalidArgument(f"{field} is not valid JSON. {problem}", field=field) from error
        except RecursionError:
            _refuse_depth(field)
    if _depth(payload) > limits.JSON_DEPTH_MAX:
        _refuse_depth(field)


def _depth(payload: bytes) -> int:
    """Return the depth of valid JSON; a text with few brackets cannot be too deep."""
    if payload.count(b"[") + payload.count(b"{") <= limits.JSON_DEPTH_MAX:
        return 0
    brackets = _STRING.sub(b"", payload).translate(_STEPS, _NO_BRACKETS)
    # They may all be inside strings.
    return max(accumulate(array("b", brackets)), default=0)


def _payloads(value: object, path: str) -> Iterator[tuple[str, bytes]]:
    """Find the payloads of a body, with the names of their fields."""
    if isinstance(value, msgspec.Raw):
        if payload := bytes(value):
            yield path, payload
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _payloads(each, f"{path}[{number}]")
    elif isinstance(value, msgspec.Struct):
        for name, wire_name in _field_names(type(value)):
            member = getattr(value, name)
            if isinstance(member, msgspec.Raw | list | msgspec.Struct):
                yield from _payloads(member, f"{path}.{wire_name}" if path else wire_name)


@functools.cache
def _field_names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, each.encode_name) for each in msgspec.structs.fields(kind))


class _Object:
    """A JSON object as it was written, with every key."""

    def __init__(self, members: list[Members]) -> None:
        self.members = members


def _members(text: str) -> object:
    """Return JSON with every key; numbers stay text, their range was checked before."""
    return json.loads(text, object_pairs_hook=_Object, parse_int=str, parse_float=str)


def _has_unique_keys(data: bytes) -> bool:
    """Return whether no key occurs twice in an object; faster than finding it.

    Decoding keeps one of two equal keys; then the encoded text has fewer members than before.
    """
    again = _encode(_decode_any(data))
    if again == msgspec.json.format(data, indent=-1):
        return True
    # They also differ when a number or a letter can be written in another way.
    return _member_count(again) == _member_count(data)


def _member_count(data: bytes) -> int:
    return _STRING.sub(b"", data).count(b":")


def _check_unique(value: object, path: str) -> None:
    if isinstance(value, list):
        for number, each in enumerate(value):
            _check_unique(each, f"{path}[{number}]")
    elif isinstance(value, _Object):
        seen: set[str] = set()
        for key, member in value.members:
            field = f"{path}.{key}" if path else key
            if key in seen:
                _refuse(_shown(field, path or "body"), "occurs twice in its object")
            seen.add(key)
            _check_unique(member, field)


def _shown(field: str, whole: str) -> str:
    """Return a field that may be repeated in an answer: the caller may have invented it."""
    return field if _PATH.fullmatch(field) else whole


def refusal(error: msgspec.ValidationError, *, whole: str = "body") -> InvalidArgument:
    """Return the typed error for what msgspec found, with its field."""
    text = str(error)
    place = _PLACE.search(text)
    problem = text[: place.start()] if place else text
    path = place[1].partition("[...]")[0].lstrip(".") if place else ""
    for begin, complaint in _ABOUT_A_MEMBER.items():
        if problem.startswith(begin):
            member = problem.removeprefix(begin).strip("`")
            field = _shown(f"{path}.{member}" if path else member, whole)
            return InvalidArgument(f"{field} {complaint}", field=field)
    field = path or whole
    if problem.startswith(_UNKNOWN_VALUE):
        # The value is not repeated: it may have been meant for another field.
        problem = "is not one of the allowed values"
    return InvalidArgument(f"{field}: {problem}", field=field)


_UNKNOWN_VALUE: Final = "Invalid enum value "
_ABOUT_A_MEMBER: Final = {
    "Object contains unknown field ": "is unknown",
    "Object missing required field ": "is missing",
}


def _refuse_depth(field: str) -> NoReturn:
    _refuse(field, f"is nested deeper than {limits.JSON_DEPTH_MAX} levels")


def _refuse(field: str, problem: str) -> NoReturn:
    raise InvalidArgument(f"{field} {problem}", field=field)
