"""The parameters of an activity: checked when it is enqueued, typed when it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, get_type_hints

import msgspec

from tenure.sdk.payload import BYTES, JSON, Converter, Payload

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """The parameters of an activity by name, and how they travel."""

    def __init__(self, function: Callable[..., object], *, is_method: bool) -> None:
        """Look at a function; raise ``TypeError`` for parameters that cannot travel by name."""
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[1 if is_method else 0 :]
        for each in parameters:
            if each.kind not in _NAMED:
                message = (
                    f"{function.__qualname__} takes {each}: arguments of an activity travel by "
                    "name, so it can have neither positional-only ones nor * and **"
                )
                raise TypeError(message)
        hints = get_type_hints(function)
        self._signature = signature.replace(parameters=parameters)
        self.result_type: Any = hints.get("return", Any)
        self._takes_bytes = len(parameters) == 1 and hints.get(parameters[0].name) is bytes
        self._names = [each.name for each in parameters]
        self._by_position = [each.name for each in parameters if each.kind is _NAMED[0]]
        self._required = [each.name for each in parameters if each.default is each.empty]
        self._arguments = _arguments_type(function, parameters, hints)

    def bind(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by name; raise ``TypeError`` for those that do not fit."""
        if not kwargs and len(args) == len(self._by_position) == len(self._names):
            # Nothing can be wrong, and the long way takes ten times as long.
            return dict(zip(self._names, args, strict=True))
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"activity {name}: {error}") from None

    def encode(self, converter: Converter, arguments: dict[str, Any]) -> Payload:
        """Return arguments as they travel: by name, or a sole parameter of bytes as it is."""
        if self._takes_bytes and arguments:
            (value,) = arguments.values()
            return converter.encode(value)
        return converter.encode(arguments)

    def decode(self, converter: Converter, payload: Payload) -> dict[str, Any]:
        """Return the arguments of a payload; raise ``PayloadError`` for what does not fit."""
        if not payload.data and not self._required and payload.encoding != BYTES:
            return {}
        if self._takes_bytes and payload.encoding not in ("", JSON):
            return {self._names[0]: converter.decode(payload, bytes)}
        given = converter.decode(payload, self._arguments)
        return {
            name: value
            for name in self._names
            if (value := getattr(given, name)) is not msgspec.UNSET
        }


def _arguments_type(
    function: Callable[..., object], parameters: list[inspect.Parameter], hints: dict[str, Any]
) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any, Any] | tuple[str, Any]] = []
    for each in parameters:
        kind = hints.get(each.name, Any)
        if each.default is each.empty:
            fields.append((each.name, kind))
        else:
            fields.append((each.name, kind | msgspec.UnsetType, msgspec.UNSET))
    try:
        made = msgspec.defstruct(
            f"{function.__name__}_arguments", fields, kw_only=True, forbid_unknown_fields=True
        )
        msgspec.json.Decoder(made, dec_hook=lambda _, value: value)
    except TypeError as error:
        message = f"the parameters of {function.__qualname__} cannot be read from JSON: {error}"
        raise TypeError(message) from None
    return made
