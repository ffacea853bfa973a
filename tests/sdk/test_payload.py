"""Values become bytes and values again; what cannot be is said with its place."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import msgspec
import pydantic
import pytest

from tenure.sdk.payload import Codec, Converter, Payload, PayloadError


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


class Order(msgspec.Struct):
    id: str
    points: list[Point]
    at: dt.datetime


class Model(pydantic.BaseModel):
    count: int
    tags: list[str] = []


class Reversing:
    """Stands for an encryption."""

    def encode(self, payload: Payload) -> Payload:
        return Payload(f"reversed+{payload.encoding}", payload.data[::-1])

    def decode(self, payload: Payload) -> Payload:
        kind, plus, inner = payload.encoding.partition("+")
        if kind != "reversed" or not plus:
            return payload
        return Payload(inner, payload.data[::-1])


@pytest.mark.parametrize("codec", [None, Reversing()], ids=["plain", "codec"])
@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, Any),
        ({"a": [1, 2.5, "ü", None, True]}, Any),
        (Point(1), Point),
        (Order("o", [Point(1)], dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), Order),
        (b"\x00\xff as they are", bytes),
        (b"", bytes),
    ],
)
def test_a_value_comes_back_as_it_was(codec: Codec | None, value: object, wanted: Any) -> None:
    converter = Converter(codec)
    payload = converter.encode(value)
    assert converter.decode(payload, wanted) == value
    if codec is not None:
        assert payload.encoding.startswith("reversed+")


def test_a_model_of_pydantic_comes_back_as_it_was() -> None:
    converter = Converter()
    value = Model(count=3, tags=["a"])
    assert converter.decode(converter.encode(value), Model) == value
    nested = converter.decode(converter.encode([value]), list[Model])
    assert nested == [value]
    with pytest.raises(PayloadError, match="count"):
        converter.decode(Payload("json", b'{"count": "many"}'), Model)


@pytest.mark.parametrize(
    ("payload", "wanted", "said"),
    [
        (Payload("json", b'{"x": "one"}'), Point, "must be Point: x must be int, not str"),
        (Payload("json", b"null"), Point, "must be Point, not None"),
        (Payload("json", b""), Any, "JSON"),
        (Payload("json", b"\xff"), Any, "JSON"),
        (Payload("bytes", b"x"), Point, "bytes"),
        (Payload("aes+json", b"x"), Point, "aes"),
        (Payload("json", b"[" * 100_000), Any, "JSON"),
    ],
)
def test_what_cannot_be_decoded_is_an_error_and_never_null(
    payload: Payload, wanted: Any, said: str
) -> None:
    with pytest.raises(PayloadError, match=said):
        Converter().decode(payload, wanted)


class Locked(Reversing):
    """Stands for an encryption whose key is another one."""

    def decode(self, payload: Payload) -> Payload:
        raise RuntimeError(payload.data)


def test_what_a_codec_cannot_decode_is_told_without_its_bytes() -> None:
    with pytest.raises(PayloadError, match=r"reversed\+json.*RuntimeError") as caught:
        Converter(Locked()).decode(Reversing().encode(Payload("json", b'"secret"')), str)
    assert "secret" not in str(caught.value)


def test_a_value_without_a_json_form_is_refused_with_what_to_use() -> None:
    with pytest.raises(PayloadError, match="dataclasses"):
        Converter().encode({"socket": object()})


@pytest.mark.parametrize("codec", [None, Reversing()], ids=["plain", "codec"])
def test_details_come_back_each_as_its_type(codec: Codec | None) -> None:
    converter = Converter(codec)
    data = converter.encode_details((Point(3), "cursor", 7))
    assert converter.decode_details(data, Point, str, int) == (Point(3), "cursor", 7)
    assert converter.decode_details(data, Point) == (Point(3), "cursor", 7)
    with pytest.raises(PayloadError, match="3 details"):
        converter.decode_details(data, Point, str, int, int)


@pytest.mark.parametrize("data", [b"\xff\x00rest", b"\xff", b"", b"aes:json\x00rest", b"{}"])
def test_details_that_are_none_are_an_error_of_payloads(data: bytes) -> None:
    with pytest.raises(PayloadError):
        Converter().decode_details(data, int)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_a_float_that_json_does_not_have_is_refused_and_never_turned_into_null(odd: float) -> None:
    for value in (odd, [1.5, odd], {"deep": {"list": [{"x": odd}]}}, (None, odd)):
        with pytest.raises(PayloadError, match="JSON has no number"):
            Converter().encode(value)


def test_values_that_are_null_are_still_null() -> None:
    for value in (None, [None, 1.5], {"a": None, "b": "null"}):
        assert Converter().decode(Converter().encode(value), Any) == value
