"""Values and bytes: JSON made by msgspec, bytes as they are, and never pickle.

A codec may encrypt or compress the encoded bytes before they are sent. It names that in the
encoding.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final, Protocol, runtime_checkable
from uuid import UUID

import msgspec
from msgspec import inspect

from tenure.sdk.misfit import misfit, unsupported

JSON: Final = "json"
BYTES: Final = "bytes"
# No JSON text contains this byte. What comes before it is the name of an encoding.
_MARK: Final = b"\0"
_NULL: Final = b"null"
_WHAT_TRAVELS: Final = (
    "Use plain values, dataclasses, msgspec Structs, pydantic models or pathlib paths."
)
_BYTES: Final = (bytes, bytearray, memoryview)
_TEXT_IN_JSON: Final = (*_BYTES, datetime, date, time, timedelta, UUID, Decimal)


class Payload(msgspec.Struct, frozen=True, gc=False):
    """Bytes, and the name of what they are."""

    encoding: str
    data: bytes


@runtime_checkable
class Codec(Protocol):
    """Changes payloads before they are sent and after they arrive; both sides need the same codec.

    ``encode`` gets ``json`` or ``bytes`` and returns another encoding, such as ``aes:json``;
    ``decode`` undoes it, and returns what it does not know unchanged.
    """

    def encode(self, payload: Payload) -> Payload:
        """Return what travels."""
        ...

    def decode(self, payload: Payload) -> Payload:
        """Return what was given to ``encode``."""
        ...


class PayloadError(ValueError):
    """A value cannot be encoded, or bytes cannot be decoded as the type that is wanted."""


class UnsupportedValue(TypeError):
    """A value of a type that cannot be made JSON; the message is the name of the type."""


UserValue = Any
"""A value of a user, or a type that a user annotates with: only the user's code knows it."""


class Converter:
    """Encodes and decodes by type, through the codec if there is one."""

    def __init__(self, codec: Codec | None = None) -> None:
        """Convert with ``codec``, which sees the bytes last."""
        self._codec = codec

    def encode(self, value: object) -> Payload:
        """Return a value as it travels."""
        if isinstance(value, _BYTES):
            payload = Payload(BYTES, bytes(value))
        else:
            payload = Payload(JSON, encode_json(value))
        return self.seal(payload)

    def decode(self, payload: Payload, wanted: UserValue) -> UserValue:
        """Return the value of a payload as the wanted type; bytes stay bytes."""
        payload = self.open(payload)
        if payload.encoding == BYTES:
            if wanted not in (bytes, Any, object):
                message = f"The payload is bytes, but {name_of(wanted)} is expected."
                raise PayloadError(message)
            return payload.data
        if payload.encoding not in (JSON, ""):
            message = (
                f"The encoding {payload.encoding!r} is unknown. Use the codec that made it: codec=…"
            )
            raise PayloadError(message)
        return decode_json(payload.data, wanted)

    def seal(self, payload: Payload) -> Payload:
        """Return plain bytes as the codec wants them to travel."""
        return payload if self._codec is None else self._codec.encode(payload)

    def open(self, payload: Payload) -> Payload:
        """Return bytes as they were before the codec."""
        if self._codec is None or payload.encoding in (JSON, BYTES, ""):
            return payload
        try:
            return self._codec.decode(payload)
        except Exception as error:
            # A wrong key, or other bytes than were encoded; its text may show them.
            name = type(error).__name__
            message = f"The codec cannot decode {payload.encoding!r}: it raised {name}."
            raise PayloadError(message) from error

    def encode_details(self, details: tuple[object, ...]) -> bytes:
        """Return values as one JSON array; with a codec, marked with its encoding."""
        return self.seal_details(encode_json(details))

    def seal_details(self, data: bytes) -> bytes:
        """Return details in plain JSON as the codec wants them to travel."""
        if self._codec is None:
            return data
        payload = self._codec.encode(Payload(JSON, data))
        return payload.encoding.encode() + _MARK + payload.data

    def open_details(self, data: bytes) -> Payload:
        """Return details as they were before the codec."""
        head, mark, tail = data.partition(_MARK)
        # Details may come from anywhere: what is no name is shown as it is, and not known.
        name = head.decode("ascii", "backslashreplace")
        return self.open(Payload(name, tail) if mark else Payload(JSON, data))

    def decode_details(self, data: bytes, *wanted: UserValue) -> tuple[UserValue, ...]:
        """Return the values of ``encode_details``, each as its type; the rest as plain values."""
        payload = self.open_details(data)
        try:
            values = self.decode(payload, list[msgspec.Raw])
        except PayloadError as error:
            message = "The details are not a list in JSON, as heartbeats and errors record them."
            raise PayloadError(message) from error
        types = [*wanted, *([Any] * (len(values) - len(wanted)))]
        if len(wanted) > len(values):
            message = f"There are {len(values)} details, but {len(wanted)} types were given."
            raise PayloadError(message)
        return tuple(decode_json(raw, each) for raw, each in zip(values, types, strict=True))


def encode_json(value: object) -> bytes:
    """Return a value as JSON: plain values, dataclasses, Structs, pydantic models, and more."""
    try:
        data = msgspec.json.encode(value, enc_hook=_encode_other)
        # A null may have been NaN or infinity, which JSON does not have.
        if value is not None and _NULL in data:
            _refuse_odd_floats(msgspec.to_builtins(value, enc_hook=_encode_other))
    except UnsupportedValue as error:
        raise PayloadError(f"{error} cannot travel as JSON. {_WHAT_TRAVELS}") from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"A value of type {name_of(type(value))} cannot travel as JSON: {error}"
        raise PayloadError(message) from error
    return data


def decode_json(data: bytes | msgspec.Raw, wanted: UserValue) -> UserValue:
    """Return JSON as the wanted type; raise ``PayloadError`` with the place of what is wrong."""
    try:
        return msgspec.json.decode(data, type=wanted, dec_hook=_decode_other)
    except msgspec.ValidationError as error:
        found = misfit(str(error))
        how = f", not {found.got}" if found.got and not found.place else f": {found}"
        raise PayloadError(f"The value must be {name_of(wanted)}{how}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(f"The payload is not JSON: {error}") from error


def check_value(value: object, wanted: UserValue) -> None:
    """Raise ``PayloadError`` for a value of another type whose JSON reads like the wanted one.

    In JSON bytes, dates and the like are text, and so is every key.
    """
    try:
        plain = msgspec.to_builtins(value, builtin_types=_TEXT_IN_JSON, enc_hook=_encode_other)
    except TypeError:
        # It has been made JSON, so it has some that was made before: a msgspec.Raw.
        return
    try:
        msgspec.convert(plain, wanted, dec_hook=_decode_other)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"The value is no {name_of(wanted)}: {error}"
        raise PayloadError(message) from error


def why_not(kind: UserValue) -> str:
    """Return why values of a type cannot travel as JSON; empty if they can."""
    try:
        # The decoder refuses more than the description of a type does.
        msgspec.json.Decoder(kind, dec_hook=_decode_other)
        described = inspect.type_info(kind)
    except TypeError as error:
        return f"{name_of(kind)} cannot travel as JSON: {unsupported(str(error))}"
    for each in _custom_types(described):
        if each is not object and not _is_path(each) and not _is_pydantic(each):
            return f"{name_of(each)} cannot travel as JSON. {_WHAT_TRAVELS}"
    return ""


def name_of(kind: UserValue) -> str:
    """Return a type as people write it."""
    return kind.__qualname__ if isinstance(kind, type) else str(kind).replace("typing.", "")


def _custom_types(described: inspect.Type) -> Iterator[UserValue]:
    """Yield the types inside of a type that msgspec leaves to its hooks."""
    left: list[object] = [described]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if isinstance(each, tuple):
            left.extend(each)
        elif isinstance(each, inspect.Type | inspect.Field) and id(each) not in seen:
            seen.add(id(each))
            if isinstance(each, inspect.CustomType):
                yield each.cls
            left.extend(getattr(each, name) for name in each.__struct_fields__)


def _refuse_odd_floats(value: object) -> None:
    """Raise ``ValueError`` if a plain value contains NaN or infinity, which JSON does not have."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, float) and not math.isfinite(each):
            raise ValueError(f"JSON has no number {each}; send None or a text instead")
        if isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)


def _is_pydantic(kind: UserValue) -> bool:
    # Nobody has a model without having imported pydantic; importing it here would cost 0.1 s.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _is_path(kind: UserValue) -> bool:
    return isinstance(kind, type) and issubclass(kind, PurePath)


def _encode_other(value: UserValue) -> object:
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str):
        # A subclass of it: what that shows to people may be another text.
        return str.__str__(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)
    raise UnsupportedValue(name_of(type(value)))


def _decode_other(wanted: UserValue, value: object) -> object:
    if wanted is object:
        return value
    if _is_pydantic(wanted):
        return _decode_model(wanted, value)
    if _is_path(wanted):
        if not isinstance(value, str):
            raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
        return wanted(value)
    raise TypeError(f"{name_of(wanted)} is not supported")


def _decode_model(wanted: UserValue, value: object) -> object:
    try:
        return wanted.model_validate(value)
    except sys.modules["pydantic"].ValidationError as error:
        # Its own text has an address for each problem, and quotes the value.
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        texts = [": ".join(filter(None, (_place(each["loc"]), each["msg"]))) for each in problems]
        raise ValueError("; ".join(texts)) from None


def _place(keys: tuple[object, ...]) -> str:
    return ".".join(map(str, keys))
