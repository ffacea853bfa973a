"""The parameters of activities and workflows: checked before they travel, typed when they run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final, Never, NoReturn, get_type_hints, is_typeddict

import msgspec

from tenure.sdk import payload
from tenure.sdk.misfit import misfit
from tenure.sdk.payload import BYTES, JSON, Converter, Payload, PayloadError

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_STARS: Final[dict[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


class Signature:
    """The parameters of an activity or a workflow by name, and how they travel."""

    def __init__(
        self, function: Callable[..., object], name: str, *, is_method: bool, noun: str = "activity"
    ) -> None:
        """Inspect a function; a ``TypeError`` names the parameter that cannot be sent as JSON.

        A method has a first parameter that is not sent. ``noun`` is for messages.
        """
        self._title = f"{noun} {name}"
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[1 if is_method else 0 :]
        for each in parameters:
            if each.kind not in _NAMED:
                shown = f"{_STARS.get(each.kind, '')}{each.name}"
                message = (
                    f"{self._title}: parameter {shown}: arguments travel by name, so *, ** and "
                    "positional-only parameters cannot be used. Use a list or a dict instead."
                )
                raise TypeError(message)
        hints = get_type_hints(function)
        self._signature = signature.replace(parameters=parameters)
        self.result_type: Any = hints.get("return", Any)
        self._kinds = {each.name: hints.get(each.name, Any) for each in parameters}
        self._takes_bytes = [*self._kinds.values()] == [bytes]
        self.names = list(self._kinds)
        self._by_position = [each.name for each in parameters if each.kind is _NAMED[0]]
        self._required = [each.name for each in parameters if each.default is each.empty]
        self._check_kinds()
        self._arguments = msgspec.defstruct(
            f"the parameters of {name}",
            [_field(each, self._kinds[each.name]) for each in parameters],
            kw_only=True,
            forbid_unknown_fields=True,
        )

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by name; raise ``TypeError`` for those that do not fit."""
        if not kwargs and len(args) == len(self._by_position) == len(self.names):
            # The arguments fit; ``bind`` would take ten times as long.
            return dict(zip(self.names, args, strict=True))
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._title}: {error}") from None

    def encode(self, arguments: dict[str, Any]) -> Payload:
        """Return arguments as JSON by name; a single parameter of type bytes is sent as it is.

        They are decoded as a worker does it, so that wrong types raise ``TypeError`` here.
        """
        if self._takes_bytes and arguments:
            (value,) = arguments.values()
            if not isinstance(value, bytes | bytearray | memoryview):
                raise TypeError(f"{self._title}: {self._other_type(self.names[0], value)}")
            return Payload(BYTES, bytes(value))
        try:
            data = payload.encode_json(arguments)
        except PayloadError:
            self._refuse(arguments)
            raise
        try:
            payload.check_value(arguments, self._arguments)
            payload.decode_json(data, self._arguments)
        except PayloadError as error:
            raise TypeError(f"{self._title}: {self._misfit(error, arguments)}") from None
        return Payload(JSON, data)

    def decode(self, converter: Converter, given: Payload) -> dict[str, Any]:
        """Return the arguments of a payload; raise ``PayloadError`` for what does not fit."""
        if not given.data and not self._required and given.encoding != BYTES:
            return {}
        if self._takes_bytes and given.encoding not in ("", JSON):
            return {self.names[0]: converter.decode(given, bytes)}
        try:
            found = converter.decode(given, self._arguments)
        except PayloadError as error:
            if isinstance(error.__cause__, msgspec.ValidationError):
                raise PayloadError(self._misfit(error)) from error
            raise
        return {
            name: value
            for name in self.names
            if (value := getattr(found, name)) is not msgspec.UNSET
        }

    def _check_kinds(self) -> None:
        for name, kind in self._kinds.items():
            why = payload.why_not(kind)
            if why:
                raise TypeError(f"{self._title}: parameter {name}: {why}")
        if self.result_type not in (NoReturn, Never):
            why = payload.why_not(self.result_type)
            if why:
                raise TypeError(f"{self._title}: its result: {why}")

    def _refuse(self, arguments: dict[str, Any]) -> None:
        """Raise for the first argument that cannot be made JSON."""
        for name, value in arguments.items():
            kind = self._kinds[name]
            try:
                payload.encode_json(value)
            except PayloadError as error:
                if _is_other(value, kind):
                    text = f"{self._title}: {self._other_type(name, value)}"
                    raise TypeError(text) from None
                text = f"{self._title}: parameter {name}: {error}"
                is_type = isinstance(error.__cause__, TypeError)
                raise (TypeError if is_type else PayloadError)(text) from error

    def _misfit(self, error: PayloadError, arguments: dict[str, Any] | None = None) -> str:
        """Return which parameter does not fit, what it takes and what it got."""
        found = misfit(str(error.__cause__))
        if not found.place:
            return f"the input must be a JSON object with the parameters by name, not {found.got}"
        name = re.split(r"\W", found.place)[0]
        if found == (name, "is missing", ""):
            return f"parameter {name} is missing"
        if name not in self._kinds:
            return f"there is no parameter {name}"
        if found.place == name and found.got:
            if arguments is not None:
                return self._other_type(name, arguments[name])
            return f"parameter {name} must be {self._wanted(name)}, not {found.got}"
        return f"parameter {name} must be {self._wanted(name)}: {found}"

    def _other_type(self, name: str, value: object) -> str:
        return f"parameter {name} must be {self._wanted(name)}, not {payload.name_of(type(value))}"

    def _wanted(self, name: str) -> str:
        return payload.name_of(self._kinds[name])


def _is_other(value: object, kind: Any) -> bool:  # noqa: ANN401 (a type of the user)
    """Tell whether a value is of another type, as far as Python can tell of a value alone."""
    if is_typeddict(kind):
        return not isinstance(value, dict)
    return kind is not Any and isinstance(kind, type) and not isinstance(value, kind)


def _field(of: inspect.Parameter, kind: Any) -> tuple[str, Any, Any] | tuple[str, Any]:  # noqa: ANN401 (a type of the user)
    if of.default is of.empty:
        return of.name, kind
    return of.name, kind | msgspec.UnsetType, msgspec.UNSET
