"""Recognises complete requests for new work in received data, without parsing them.

Only the common form is recognised: one request, head and body, in one piece. All others are handled
as usual, and can still be refused before their body is read.
"""

from __future__ import annotations

import re
from typing import Final

from tenure.api.guard.admission import overloaded
from tenure.api.http.edge.error import error_response

_NEW_WORK: Final = re.compile(rb"POST /v1/(tasks|tasks:batch|runs)[ ?]")
_NAMES: Final = {b"tasks": "enqueueTask", b"tasks:batch": "enqueueTasks", b"runs": "startRun"}
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*(?=\r\n)", re.IGNORECASE)
# Such a request does not end with its length, or expects an answer before it continues.
_ODD: Final = re.compile(rb"\r\n(transfer-encoding|expect|connection|upgrade):", re.IGNORECASE)


def new_work(data: bytes) -> str | None:
    """Return the name of the operation, if ``data`` is exactly one request for new work."""
    found = _NEW_WORK.match(data)
    if found is None:
        return None
    head_end = data.find(_HEAD_END)
    # The first of the two line ends belongs to the last header.
    lengths = _LENGTH.findall(data, 0, head_end + 2)
    if head_end < 0 or len(lengths) != 1 or _ODD.search(data, 0, head_end):
        return None
    if len(data) != head_end + len(_HEAD_END) + int(lengths[0]):
        return None
    return _NAMES[found[1]]


def _answer() -> bytes:
    """Return the refusal as bytes; it has no date and no id, which would cost time."""
    response = error_response(overloaded())
    response.headers["x-content-type-options"] = "nosniff"
    head = b"".join(b"%b: %b\r\n" % each for each in response.raw_headers)
    return b"HTTP/1.1 429 Too Many Requests\r\n%b\r\n%b" % (head, bytes(response.body))


ANSWER: Final = _answer()
