from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.polling import eventually
from tests.wire.proxy import Proxy


def frame(kind: int, body: bytes, flags: int = 0) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags, 0, 0, 0, 1]) + body


class Peer:
    """A server that sends what it is told to, for each byte that it gets."""

    def __init__(self) -> None:
        self.heard = b""
        self.answer = b""
        self.open_count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_count += 1
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                self.heard += data
                writer.write(self.answer)
                await writer.drain()
        writer.transport.abort()
        self.open_count -= 1


@asynccontextmanager
async def a_proxy(peer: Peer) -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Proxy(f"127.0.0.1:{port}") as proxy:
        yield proxy
    server.close()
    await eventually(lambda: peer.open_count == 0, "the end of all lines")
    await asyncio.sleep(0)


async def ask(proxy: Proxy, count: int) -> bytes:
    """Send a byte; return what comes within so many bytes, or until the connection is cut."""
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"?")
    try:
        async with asyncio.timeout(5):
            return await reader.readexactly(count)
    except asyncio.IncompleteReadError as cut:
        return cut.partial
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_comes_while_the_proxy_closes_is_closed(turns: int) -> None:
    with socket.socket() as late:
        async with a_proxy(Peer()) as proxy:
            host, _, port = proxy.address.rpartition(":")
            late.connect((host, int(port)))
            for _turn in range(turns):
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        # A socket left open warns when it is collected, and a warning is an error here.
        gc.collect()


async def test_frames_pass_unchanged() -> None:
    peer = Peer()
    peer.answer = frame(4, b"settings") + frame(0, b"data")
    async with a_proxy(peer) as proxy:
        assert await ask(proxy, len(peer.answer)) == peer.answer
        assert (proxy.answer_count, proxy.lost_count) == (1, 0)


async def test_a_refusal_is_an_answer_and_the_end_of_one_is_none() -> None:
    peer = Peer()
    peer.answer = frame(1, b"refused", flags=5)
    async with a_proxy(peer) as proxy:
        await ask(proxy, len(peer.answer))
        assert proxy.answer_count == 1
        peer.answer = frame(1, b"began", flags=4) + frame(0, b"data") + frame(1, b"end", flags=5)
        await ask(proxy, len(peer.answer))
        assert proxy.answer_count == 2


async def test_a_lost_answer_was_asked_for_and_its_connection_is_cut() -> None:
    peer = Peer()
    peer.answer = frame(4, b"settings") + frame(0, b"data")
    async with a_proxy(peer) as proxy:
        proxy.loss = 1.0
        assert await ask(proxy, len(peer.answer)) in (frame(4, b"settings"), b"")
        assert peer.heard == b"?"
        assert proxy.lost_count == 1


async def test_a_muted_line_stays_open_until_it_is_cut() -> None:
    peer = Peer()
    peer.answer = frame(0, b"data")
    async with a_proxy(peer) as proxy:
        proxy.is_muted = True
        asking = asyncio.ensure_future(ask(proxy, 1))
        await eventually(lambda: proxy.lost_count, "a lost answer")
        assert not asking.done()
        proxy.cut()
        assert await asking == b""


async def test_who_asks_while_the_target_is_gone_is_cut_off() -> None:
    async with Proxy("127.0.0.1:1") as proxy:
        assert await ask(proxy, 1) == b""


@pytest.mark.parametrize("share", [0.0, 0.5])
async def test_a_share_of_the_answers_is_lost(share: float) -> None:
    peer = Peer()
    peer.answer = frame(0, b"data")
    async with a_proxy(peer) as proxy:
        proxy.loss = share
        answers = [await ask(proxy, len(peer.answer)) for _ in range(20)]
        lost = answers.count(b"")
        assert lost == proxy.lost_count
        assert (lost > 0) == (share > 0)
        assert lost < 20
