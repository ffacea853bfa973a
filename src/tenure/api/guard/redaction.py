"""What may be shown of a value in a log: an allow-list, because a leak cannot be undone."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from types import TracebackType
from typing import Final

from tenure.errors import TenureError
from tenure.store.failure import StoreError

REDACTED: Final = "[redacted]"
_SECRET_KEYS: Final = re.compile(
    r"input|output|details|payload|body|progress|headers?|cookies?"
    r"|.*(token|authorization|password|passwd|secret|credential|api_?key|private_?key|cursor_?key"
    r"|dsn)",
    re.IGNORECASE,
)
# A password in a URL, one in a list of settings, the text after the name of an HTTP scheme, and the
# secret of an API key anywhere.
_SECRET_TEXTS: Final = (
    (re.compile(r"(\w://[^\s/:@]*):\S*@"), r"\1:***@"),
    (
        re.compile(r"(?i)\b(password|passwd|pwd|sslpassword|token|secret)=('[^']*'|[^\s&,;]+)"),
        r"\1=***",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), r"\1 ***"),
    (re.compile(r"(tnr_[a-z2-7]{16}_)[\w-]+"), r"\1***"),
)
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TEXT_MAX: Final = 2_000
_ITEMS_MAX: Final = 50
_DEPTH_MAX: Final = 4
_CHAIN_MAX: Final = 5
_FRAMES_MAX: Final = 30


def shown_value(key: str, value: object, depth: int = 0) -> object:
    """Return what is shown of a field: plain values as they are, without known secrets."""
    if _SECRET_KEYS.fullmatch(key):
        return REDACTED
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return scrubbed(str(value))
    if isinstance(value, BaseException):
        return shown_error(value)
    if depth < _DEPTH_MAX and isinstance(value, Mapping | list | tuple | set | frozenset):
        return _shown_items(key, value, depth + 1)
    # Bytes are payloads, and the text of a record contains its payload.
    return f"[{type(value).__name__}]"


def _shown_items(key: str, value: Collection[object], depth: int) -> object:
    if isinstance(value, Mapping):
        pairs = list(value.items())[:_ITEMS_MAX]
        return {str(name): shown_value(str(name), each, depth) for name, each in pairs}
    return [shown_value(key, each, depth) for each in list(value)[:_ITEMS_MAX]]


def scrubbed(text: str) -> str:
    """Return a text without passwords of URLs and headers, shortened for a log."""
    for pattern, shown in _SECRET_TEXTS:
        text = pattern.sub(shown, text)
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "…"


def escaped(text: str) -> str:
    """Return a text on one line, without commands for a terminal."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def first_line(text: str) -> str:
    """Return the text before the first line break."""
    return text.partition("\n")[0]


def shown_error(error: BaseException) -> str:
    """Return the type of an exception, and its message if it is known to repeat no input."""
    name = type(error).__qualname__
    if isinstance(error, TenureError | StoreError):
        return f"{name}: {escaped(scrubbed(str(error)))}"
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {escaped(scrubbed(error.strerror))}"
    return name


def shown_traceback(error: object) -> str:
    """Return where an exception and its causes come from, without any value."""
    if isinstance(error, tuple):
        error = error[1]
    elif not isinstance(error, BaseException):
        error = sys.exception()
    if not isinstance(error, BaseException):
        return ""
    return "\n".join(_lines(error))


def _lines(error: BaseException) -> Iterator[str]:
    cause: BaseException | None = error
    for number in range(_CHAIN_MAX):
        if cause is None:
            return
        yield ("caused by " if number else "") + shown_error(cause)
        yield from _frames(cause.__traceback__)
        if isinstance(cause, BaseExceptionGroup):
            yield from (f"  with {shown_error(each)}" for each in cause.exceptions[:_ITEMS_MAX])
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _frames(trace: TracebackType | None) -> Iterator[str]:
    for frame in traceback.extract_tb(trace)[-_FRAMES_MAX:]:
        yield f"  {frame.filename}:{frame.lineno} in {frame.name}"
