"""The event loop of the SDK's own threads: the quickest that there is on this platform."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop, or of the standard library where there is none."""
    try:
        import uvloop  # noqa: PLC0415 (loaded by whoever starts such a thread)
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
