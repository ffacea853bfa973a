"""How a server of asyncio stops without leaking a connection that is just being made."""

from __future__ import annotations

import asyncio
from typing import Final

# From the acceptance of a connection to its callback, in turns of the loop.
_ACCEPT_TURNS: Final = 3


async def stop_listening(server: asyncio.Server) -> None:
    """Accept no more connections; whoever was accepted before has got its callback afterwards."""
    # A server that closes forgets what it has accepted and not yet handed on.
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    for _ in range(_ACCEPT_TURNS):
        await asyncio.sleep(0)
    server.close()
