"""Notices recorded values that fit a type only because it has defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tenure.sdk.payload import JSON, Codec, Converter, Payload, PayloadError, UserValue, encode_json

# Items of a list are alike.
_ITEMS_LOOKED_AT: Final = 20
_WARNINGS_MAX: Final = 20
_decode: Final = msgspec.json.Decoder().decode


class WatchingConverter(Converter):
    """A converter that notes which fields a recorded value lacks."""

    def __init__(self, codec: Codec | None = None) -> None:
        """Watch nothing yet."""
        super().__init__(codec)
        self.warnings: list[str] = []
        self._names: dict[int, str] = {}

    def watch(self, name: str, data: bytes | None) -> None:
        """Call the value of these very bytes by a name."""
        if data:
            self._names[id(data)] = name

    def decode(self, payload: Payload, wanted: UserValue) -> UserValue:
        """Return the value, after a look at what it lacks."""
        value = super().decode(payload, wanted)
        name = self._names.get(id(payload.data))
        if name is not None and len(self.warnings) < _WARNINGS_MAX:
            self._look(name, self.open(payload), value)
        return value

    def _look(self, name: str, plain: Payload, value: object) -> None:
        if plain.encoding not in (JSON, ""):
            return
        try:
            now = _decode(encode_json(value))
        except PayloadError:
            return
        for place in sorted(set(_missing(_decode(plain.data), now, ""))):
            text = f"{name} was recorded without {place}: the default is used"
            if text not in self.warnings:
                self.warnings.append(text)


def _missing(recorded: object, now: object, place: str) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(now, dict):
        for key, value in now.items():
            where = f"{place}.{key}" if place else str(key)
            if key in recorded:
                yield from _missing(recorded[key], value, where)
            else:
                yield where
    elif isinstance(recorded, list) and isinstance(now, list):
        pairs = zip(recorded[:_ITEMS_LOOKED_AT], now[:_ITEMS_LOOKED_AT], strict=False)
        for one, other in pairs:
            yield from _missing(one, other, f"{place}[]")
