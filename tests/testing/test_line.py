"""The line between a test's client and its server, at its end."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from tenure.testing.line import ClientLine


async def _connect_and_close(turns: int) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    line = ClientLine("127.0.0.1", server.sockets[0].getsockname()[1])
    host, port = (await line.open()).split(":")
    with socket.create_connection((host, int(port))):
        for _ in range(turns):
            await asyncio.sleep(0)
        await line.close()
    server.close()


@pytest.mark.parametrize("turns", range(6))
def test_a_line_that_closes_leaks_no_connection_that_is_just_being_made(turns: int) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(_connect_and_close(turns))
        gc.collect()

    assert [str(each.message) for each in told] == []
