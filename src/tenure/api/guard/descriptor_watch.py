"""Checks whether there are file descriptors left, and logs it once when there are none.

Without one a server can accept no connection. Then uvloop and gRPC refuse clients silently, and
asyncio writes a line for each; here one line says it, and the next one when it is over.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from typing import Any, Final

import structlog

from tenure.core.limits import DESCRIPTOR_LOOK_MS, DESCRIPTOR_LOOKS

log = structlog.get_logger("tenure.api")
_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class DescriptorWatch:
    """Knows whether there are no descriptors left."""

    def __init__(self) -> None:
        """Start with enough of them."""
        self.is_out = False
        self._good_looks = 0

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception of the loop; a failed accept is logged in our own way."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _ERRNOS:
            self._note_none()
        else:
            loop.default_exception_handler(context)

    async def serve(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(DESCRIPTOR_LOOK_MS / 1_000)
            self.look()

    def look(self) -> None:
        """Check by opening one and closing it again."""
        try:
            socket.socket().close()
        except OSError as error:
            if error.errno in _ERRNOS:
                self._note_none()
            return
        self._good_looks += 1
        if self.is_out and self._good_looks >= DESCRIPTOR_LOOKS:
            self.is_out = False
            log.info("server.descriptors_free")

    def _note_none(self) -> None:
        self._good_looks = 0
        if self.is_out:
            return
        self.is_out = True
        log.error(
            "server.out_of_descriptors",
            limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            message="The server accepts no new connections until others close. Increase the limit "
            "of open files: ulimit -n, or LimitNOFILE of systemd.",
        )
