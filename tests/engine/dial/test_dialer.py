"""Connections go to a checked address, and to no other."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest

from tenure.core import limits
from tenure.core.address import AllowList, read_url
from tenure.engine.dial.dialer import Dialer, DialFailure, Place, Streams, connect
from tenure.engine.dial.resolver import SystemResolver
from tests.core.hostile_url import HOSTILE_ADDRESSES, HOSTILE_URLS

PUBLIC = "93.184.215.14"
HOST = "hook.example"


class Names:
    """A resolver whose names point where a test wants; a list of lists is one answer a time."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def addresses(self, host: str, port: int) -> list[str]:
        del port
        self.asked.append(host)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not answer:
            raise OSError("no such name")
        return answer

    def close(self) -> None:
        """Nothing to end."""


class NoConnection:
    """Notes which addresses would have been connected to."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    async def __call__(self, place: Place) -> Streams:
        self.addresses.append(str(place.address))
        raise ConnectionRefusedError


async def failure_of(dialer: Dialer, url: str, allowed: AllowList | None = None) -> DialFailure:
    target = read_url(url, "url")
    with pytest.raises(DialFailure) as caught:
        await dialer.open(target.host, target.port, target.rule(allowed or AllowList()), None)
    return caught.value


@asynccontextmanager
async def listening(answer: Callable[[], bytes]) -> AsyncIterator[int]:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("address", HOSTILE_ADDRESSES)
async def test_a_name_that_points_to_a_special_address_is_never_connected_to(address: str) -> None:
    connection = NoConnection()
    dialer = Dialer(Names([address]), connection)
    assert (await failure_of(dialer, f"https://{HOST}/")).reason == "refused"
    assert connection.addresses == []


@pytest.mark.parametrize("url", [url for url in HOSTILE_URLS if url.startswith("https://[::")][:5])
async def test_an_address_that_was_stored_before_a_rule_is_checked_again(url: str) -> None:
    connection = NoConnection()
    assert (await failure_of(Dialer(Names([]), connection), url)).reason == "refused"
    assert connection.addresses == []


async def test_one_bad_address_among_good_ones_refuses_the_name() -> None:
    connection = NoConnection()
    many = [f"93.184.215.{number}" for number in range(20)]
    dialer = Dialer(Names([*many, "169.254.169.254"]), connection)
    assert (await failure_of(dialer, f"https://{HOST}/")).reason == "refused"
    assert connection.addresses == []


async def test_a_name_that_is_bound_anew_is_looked_up_once_and_checked_each_time() -> None:
    connection = NoConnection()
    names = Names([PUBLIC], ["127.0.0.1"], [PUBLIC, "10.0.0.1"], [PUBLIC])
    dialer = Dialer(names, connection)
    reasons = [(await failure_of(dialer, f"https://{HOST}/")).reason for _ in range(4)]
    assert reasons == ["connection", "refused", "refused", "connection"]
    assert names.asked == [HOST] * 4
    assert connection.addresses == [PUBLIC] * 2


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    async with listening(lambda: b"here") as port:
        names = Names(["127.0.0.1"], ["192.0.2.1"])
        allowed = AllowList.parse([HOST], "endpoint-allow")
        rule = read_url(f"http://{HOST}/", "url").rule(allowed)
        reader, writer = await Dialer(names).open(HOST, port, rule, None)
        assert await reader.read() == b"here"
        assert writer.get_extra_info("peername")[:2] == ("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
    assert names.asked == [HOST]


async def test_a_connection_that_leads_elsewhere_is_closed() -> None:
    closed: list[asyncio.StreamWriter] = []
    async with listening(lambda: b"trap") as port:

        async def astray(place: Place) -> Streams:
            streams = await connect(place._replace(address=ip_address("127.0.0.1")))
            closed.append(streams[1])
            return streams

        dialer = Dialer(Names([PUBLIC]), astray)
        assert (await failure_of(dialer, f"https://{HOST}:{port}/")).reason == "refused"
        assert closed[0].is_closing()
        await closed[0].wait_closed()


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    connection = NoConnection()
    many = [f"93.184.215.{number}" for number in range(20)]
    dialer = Dialer(Names(many), connection)
    assert (await failure_of(dialer, f"https://{HOST}/")).reason == "connection"
    assert connection.addresses == many[: limits.DIAL_ADDRESSES_MAX]


async def test_a_name_without_an_address_is_told_apart() -> None:
    assert (await failure_of(Dialer(Names([])), f"https://{HOST}/")).reason == "name"


async def test_a_resolver_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent(Names):
        async def addresses(self, host: str, port: int) -> list[str]:
            del host, port
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(limits, "DIAL_LOOKUP_MS", 10)
    assert (await failure_of(Dialer(Silent([])), f"https://{HOST}/")).reason == "name"


async def test_a_connection_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(place: Place) -> Streams:
        del place
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(limits, "DIAL_CONNECT_MS", 10)
    assert (await failure_of(Dialer(Names([PUBLIC]), hang), f"https://{HOST}/")).reason == "timeout"


async def test_a_server_without_tls_is_told_apart() -> None:
    async with listening(lambda: b"no handshake\r\n") as port:
        allowed = AllowList.parse([HOST], "endpoint-allow")
        rule = read_url(f"https://{HOST}/", "url").rule(allowed)
        with pytest.raises(DialFailure) as caught:
            await Dialer(Names(["127.0.0.1"])).open(HOST, port, rule, ssl.create_default_context())
    assert caught.value.reason == "tls"


async def test_the_resolver_of_the_system_knows_this_machine() -> None:
    resolver = SystemResolver()
    found = await resolver.addresses("localhost", 80)
    resolver.close()
    assert set(found) <= {"127.0.0.1", "::1"}
    assert found
