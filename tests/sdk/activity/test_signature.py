"""What the parameters of an activity take, where they are declared, called and read."""

from __future__ import annotations

import dataclasses
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

import msgspec
import pydantic
import pytest

from tenure import Activity, activity
from tenure.sdk.activity.definition import signature_of
from tenure.sdk.payload import Converter, Payload, PayloadError

if TYPE_CHECKING:
    from tests.nowhere import Unknown  # type: ignore[import-not-found]

declared = activity(start_to_close="30s")


@dataclasses.dataclass
class Order:
    id: int
    note: str = ""


@dataclasses.dataclass
class Cart:
    orders: list[Order]
    line: socket.socket | None = None


class Model(pydantic.BaseModel):
    count: int


@declared
def charge(order: Order, amount: float = 1.0) -> str:
    return f"{order.id}:{amount}"


@declared
def count(model: Model) -> int:
    return model.count


@declared
def shrink(image: bytes) -> bytes:
    return image[:1]


@declared
def move(source: Path, others: list[PurePosixPath], target: Path | None = None) -> Path:
    return target or source.joinpath(*others)


@declared
def anything(value: object, other: Any = None) -> object:
    return value or other


def passed(of: Activity[..., Any], *args: object, **kwargs: object) -> dict[str, Any]:
    """Return the arguments of a call as its worker gets them."""
    return signature_of(of).decode(Converter(), of.call(*args, **kwargs).payload)


@pytest.mark.parametrize(
    ("of", "args", "said"),
    [
        (charge, ("7",), "parameter order must be Order, not str"),
        (charge, ([Order(1)],), "parameter order must be Order, not list"),
        (charge, (Order(1), "2"), "parameter amount must be float, not str"),
        (charge, (Order(1), None), "parameter amount must be float, not NoneType"),
        (charge, ({"id": "7"},), "parameter order must be Order: order.id must be int, not str"),
        (charge, ({},), "parameter order must be Order: order.id is missing"),
        (charge, (object(),), "parameter order must be Order, not object"),
        (
            count,
            ({"count": "many"},),
            "parameter model must be Model: .* count: Input should be a valid integer",
        ),
        (shrink, ("text",), "parameter image must be bytes, not str"),
        (move, (7, []), "parameter source must be Path, not int"),
        (anything, (socket,), "parameter value: module cannot travel as JSON"),
    ],
)
def test_arguments_are_checked_against_the_parameter_types_before_anything_is_sent(
    of: Activity[..., Any], args: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(TypeError, match=f"^activity {of.name}: {said}") as caught:
        of.call(*args)
    for internal in ("_arguments", "the parameters of", "$", "`"):
        assert internal not in str(caught.value)


class Named(TypedDict):
    name: str


@declared
def send(to: str, tags: list[str] = [], counts: dict[str, int] = {}) -> None:  # noqa: B006 (a worker never changes them)
    """Send nothing."""


@declared
def remind(at: datetime) -> None:
    """Remind nobody."""


@declared
def keep(what: Named, other=None, models: list[Model] | None = None) -> None:  # type: ignore[no-untyped-def]  # a parameter without a type
    """Keep nothing."""


@pytest.mark.parametrize(
    ("of", "args", "said"),
    [
        (send, (b"x",), "parameter to must be str, not bytes"),
        (send, (uuid.UUID(int=1),), "parameter to must be str, not UUID"),
        (send, ("x", [b"y"]), r"parameter tags must be list\[str\]: tags\[0\] must be str"),
        (
            send,
            ("x", [], {1: 2}),
            r"counts must be dict\[str, int\]: counts has a key that must be str, not int",
        ),
        (remind, (date(2030, 1, 31),), "parameter at must be datetime, not date"),
        (charge, (Order(1), Decimal(1)), "amount must be float, not Decimal"),
        (keep, (print,), "parameter what must be Named, not builtin_function_or_method"),
        (keep, ({"name": "x"}, print), "parameter other: .*builtin_function_or_method"),
        (keep, ({"name": "x"}, 1, [3]), r"models\[0\] has a wrong value: Input should be a valid"),
    ],
)
def test_a_value_of_another_type_is_refused_although_its_json_may_look_right(
    of: Activity[..., Any], args: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(TypeError, match=f"activity {of.name}: .*{said}"):
        of.call(*args)


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "shown otherwise"


class Number(int):
    pass


class Share(float):
    pass


def test_a_value_of_a_subclass_of_a_plain_type_travels_as_the_plain_one() -> None:
    call = anything.call(Text("a"), [Number(1), Share(0.5), {Text("k"): Text("v")}])
    found = signature_of(anything).decode(Converter(), call.payload)
    assert found == {"value": "a", "other": [1, 0.5, {"k": "v"}]}
    assert send.call(Text("a")).payload.data == b'{"to":"a"}'
    with pytest.raises(PayloadError, match="no number nan"):
        anything.call(Share("nan"))
    with pytest.raises(TypeError, match="parameter value: bool cannot travel"):
        anything.call({True: 1})


def test_json_that_was_made_before_travels_as_it_is() -> None:
    assert anything.call(msgspec.Raw(b"[1]")).payload.data == b'{"value":[1]}'


def test_a_number_that_json_does_not_have_is_refused_with_its_parameter() -> None:
    with pytest.raises(PayloadError, match=r"activity charge: parameter amount: .*no number nan"):
        charge.call(Order(1), float("nan"))


def test_what_a_worker_would_take_passes_the_check() -> None:
    assert passed(charge, {"id": 7}, 2) == {"order": Order(7), "amount": 2.0}
    assert passed(count, Model(count=3)) == {"model": Model(count=3)}
    assert passed(shrink, bytearray(b"xy")) == {"image": b"xy"}
    assert passed(anything, [1, {"a": None}]) == {"value": [1, {"a": None}]}


def test_a_path_travels_as_text() -> None:
    call = move.call(Path("/data/in.csv"), [PurePosixPath("a/b")], None)
    assert call.payload.data == b'{"source":"/data/in.csv","others":["a/b"],"target":null}'
    assert passed(move, Path("in.csv"), ["a/b"]) == {
        "source": Path("in.csv"),
        "others": [PurePosixPath("a/b")],
    }
    converter = Converter()
    assert converter.decode(converter.encode(Path("out.csv")), Path) == Path("out.csv")


def lines(*names: str) -> None: ...
def options(**names: str) -> None: ...
def first(name: str, /) -> None: ...
def connect(host: str, line: socket.socket) -> None: ...
def store(carts: dict[str, Cart]) -> None: ...
def notify(then: Callable[[], None]) -> None: ...
def either(place: str | Path) -> None: ...
def opened() -> socket.socket:
    return socket.socket()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lines, r"lines: parameter \*names: .*travel by name"),
        (options, r"options: parameter \*\*names: .*travel by name"),
        (first, "first: parameter name: .*travel by name"),
        (connect, "connect: parameter line: socket cannot travel as JSON.*dataclasses"),
        (store, "store: parameter carts: socket cannot travel as JSON"),
        (notify, "notify: parameter then: Callable cannot travel as JSON"),
        (either, "either: parameter place: .*union with None only"),
        (opened, "opened: its result: socket cannot travel as JSON"),
    ],
)
def test_what_cannot_travel_is_refused_where_the_activity_is_declared(
    function: Callable[..., Any], said: str
) -> None:
    with pytest.raises(TypeError, match=f"activity {said}"):
        declared(function)


def test_a_method_is_checked_where_it_is_declared_too() -> None:
    with pytest.raises(TypeError, match="activity connect: parameter line"):

        class Lines:
            @declared
            def connect(self, line: socket.socket) -> None: ...


def test_a_generator_is_refused_where_it_is_declared() -> None:
    def rows() -> Iterator[int]:
        yield 1

    async def pages() -> AsyncIterator[int]:
        yield 1

    for function in (rows, pages):
        with pytest.raises(TypeError, match=f"activity {function.__name__}: .*return a list"):
            declared(function)


def test_types_that_are_named_before_they_exist_are_looked_up_at_the_first_call() -> None:
    def later(thing: Unknown) -> None: ...

    made = declared(later)
    with pytest.raises(NameError, match="Unknown"):
        made.call(1)


def test_an_activity_that_never_returns_can_be_declared() -> None:
    @activity(start_to_close="1s", completes_later=True)
    def approve() -> NoReturn:
        activity.complete_later()

    assert approve.call().payload.data == b"{}"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"order": {"id": "x"}}', "parameter order must be Order: order.id must be int, not str"),
        (b'{"order": [1]}', "parameter order must be Order, not list"),
        (b"{}", "parameter order is missing"),
        (b'{"order": {"id": 1}, "colour": 1}', "there is no parameter colour"),
        (b"null", "the parameters by name"),
        (b"[1]", "the parameters by name"),
        (b"", "truncated"),
    ],
)
def test_input_that_does_not_fit_names_the_parameter_and_both_types(data: bytes, said: str) -> None:
    with pytest.raises(PayloadError, match=said) as caught:
        signature_of(charge).decode(Converter(), Payload("json", data))
    for internal in (
        "charge_arguments",
        "the parameters of",
        "$",
        "`",
        "msgspec",
        "object missing",
    ):
        assert internal not in str(caught.value)
