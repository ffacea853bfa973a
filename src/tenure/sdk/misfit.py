"""What the JSON library says about a value or a type, in the words of a Python user."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# Where in a value something is wrong, at the end of a text.
_PLACE: Final = re.compile(r" - at `(key` in `)?\$\.?([^`]*)`$")
_TYPE_NAMES: Final = {"array": "list", "object": "dict", "null": "None"}
_TYPE_NAME: Final = re.compile(rf"\b(?:{'|'.join(_TYPE_NAMES)})\b")
_OTHER_TYPE: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_OTHER_SIZE: Final = re.compile(r"Expected `([^`]+)` (.+)")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `([^`]+)`")
_UNION: Final = "Type unions containing a custom type"


class Misfit(NamedTuple):
    """Where a value does not fit, such as ``order.id``, and how; ``got`` is the other type."""

    place: str
    problem: str
    got: str = ""

    def __str__(self) -> str:
        return f"{self.place} {self.problem}".lstrip()


def misfit(text: str) -> Misfit:
    """Return where and how a value does not fit its type."""
    found = _PLACE.search(text)
    place = found[2] if found else ""
    text = _PLACE.sub("", text)
    if match := _OTHER_TYPE.fullmatch(text):
        wanted, got = _in_python(match[1]), _in_python(match[2])
        if found and found[1]:
            return Misfit(place, f"has a key that must be {wanted}, not {got}")
        return Misfit(place, f"must be {wanted}, not {got}", got)
    if match := _OTHER_SIZE.fullmatch(text):
        return Misfit(place, f"must be {_in_python(match[1])} {match[2]}")
    if match := _MISSING.fullmatch(text):
        return Misfit(f"{place}.{match[1]}".lstrip("."), "is missing")
    if match := _UNKNOWN.fullmatch(text):
        return Misfit(f"{place}.{match[1]}".lstrip("."), "is not known")
    return Misfit(place, f"has a wrong value: {text}")


def unsupported(text: str) -> str:
    """Return why a type cannot be read from JSON."""
    if text.startswith(_UNION):
        return "a path, a model or object can be in a union with None only"
    return text.partition(" - ")[0].replace("`", "")


def _in_python(name: str) -> str:
    return _TYPE_NAME.sub(lambda found: _TYPE_NAMES[found[0]], name)
