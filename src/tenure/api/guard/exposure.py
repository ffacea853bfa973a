"""The start rule: an address that other machines can reach needs keys or ``--insecure``.

An open server obeys every caller. On a loopback address that is convenient; any other address needs
an admin key, so that no open server is on a network by mistake.
"""

from __future__ import annotations

import structlog

from tenure.api.setting import Address, ServerSettings
from tenure.engine.access.access_cache import AccessCache
from tenure.errors import InvalidArgument

log = structlog.get_logger("tenure.api")


def check_exposure(settings: ServerSettings, access_cache: AccessCache) -> str:
    """Return a warning if every caller can do everything; refuse that unless it is wanted."""
    exposed = settings.exposed
    if not exposed or access_cache.has_admin:
        return ""
    if not settings.is_insecure:
        field, address = exposed[0]
        message = (
            f"--{field} {address} can be reached from other machines, and the store has no live "
            "admin key, so every caller could do everything. Create the first key with "
            "`tenure keys create --role admin --store URL`, listen on 127.0.0.1, or allow it with "
            "--insecure."
        )
        raise InvalidArgument(message, field=field)
    if access_cache.has_keys:
        return ""
    warning = f"Everybody who can reach {_places(exposed)} can do everything: no API keys exist."
    log.warning("server.open_to_all", message=warning)
    return warning


def _places(exposed: tuple[tuple[str, Address], ...]) -> str:
    return " or ".join(str(address) for _, address in exposed)
