"""gRPC, loaded as Tenure wants it: what is set here it reads when it is loaded, and never again.

The SDK imports it from here, and the server's edges load this module first. Commands that ask once
and end do not need it.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Final

__all__ = ["grpc"]

# Its event engine hands every message through two more threads before an asyncio loop sees it: a
# task that comes alone takes a tenth longer, and a quarter more CPU time in client and worker.
_SETTING: Final = "GRPC_EXPERIMENTS"
_WITHOUT_EVENT_ENGINE: Final = "-event_engine_client,-event_engine_listener"
# A version that does not know these words would complain; to be looked at with each new one.
_VERSION_MAX: Final = (1, 85)


def _is_known() -> bool:
    """Tell whether the installed version is one that was looked at; a bundle may not say."""
    try:
        version = tuple(map(int, metadata.version("grpcio").split(".")[:2]))
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return version <= _VERSION_MAX


_is_ours: Final = "grpc" not in sys.modules and _SETTING not in os.environ and _is_known()
if _is_ours:
    os.environ[_SETTING] = _WITHOUT_EVENT_ENGINE
try:
    import grpc
    import grpc.aio
finally:
    if _is_ours:
        # Other programs that are started from here make a choice of their own.
        del os.environ[_SETTING]
