"""Which web pages may use an open server: only its own.

An open server obeys everybody who can reach it, and every page in a browser on this machine can. A
page of another site says where it comes from in the headers Origin and Sec-Fetch-Site, which it
cannot change. A page whose host name was changed to point here (DNS rebinding) looks like ours to
the browser, but the header Host has its name. So both are checked.

A server with keys needs none of this: a page of another site cannot send somebody's key.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from starlette.datastructures import Headers

from tenure.api.guard.access import ForeignPage
from tenure.api.setting import ServerSettings, is_loopback

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\s]+)(?::[0-9]{1,5})?")
_READS: Final = frozenset({"GET", "HEAD"})
# Another port of the same machine is another origin, but the same site.
_OUR_SITE: Final = "same-origin"
# The user has typed the address, or opened a bookmark.
_NO_SITE: Final = "none"
# Forms and requests whose page may not see the answer: our page sends neither.
_BLIND_MODES: Final = frozenset({"no-cors", "navigate"})


class OriginCheck:
    """Knows the host names of an open server."""

    def __init__(self, settings: ServerSettings) -> None:
        """Accept the given names; those of this machine are always accepted."""
        self._names = frozenset({settings.http.host.lower(), *settings.allow_hosts})

    def check(self, method: str, headers: Headers) -> None:
        """Refuse requests for another host name, or from a page of another site."""
        self._check_host(headers)
        _check_origin(headers)
        _check_fetch(method, headers)

    def _check_host(self, headers: Headers) -> None:
        found = _HOST.fullmatch(headers.get("host", ""))
        name = found[1].strip("[]").lower() if found else ""
        if not is_loopback(name) and name not in self._names:
            message = (
                "This server has no API keys, so it answers only for names of its own host. "
                "The header Host has another one: allow it with --allow-host NAME when the server "
                "is started, or create a key with `tenure keys create`."
            )
            raise ForeignPage(message, reason="foreign_host")


def _check_origin(headers: Headers) -> None:
    origins = headers.getlist("origin")
    ours = headers.get("host", "").lower()
    if any(each.lower().partition("://")[2] != ours for each in origins):
        _refuse_page("foreign_origin")


def _check_fetch(method: str, headers: Headers) -> None:
    is_read = method in _READS
    for site in headers.getlist("sec-fetch-site"):
        if site != _OUR_SITE and not (is_read and site == _NO_SITE):
            _refuse_page("foreign_site")
    if not is_read and not _BLIND_MODES.isdisjoint(headers.getlist("sec-fetch-mode")):
        _refuse_page("foreign_site")


def _refuse_page(reason: str) -> NoReturn:
    message = (
        "This server has no API keys, so it refuses requests from pages of other sites. Type the "
        "address into the browser, let a proxy pass the header Host on unchanged, or create a key "
        "with `tenure keys create` and send it."
    )
    raise ForeignPage(message, reason=reason)
