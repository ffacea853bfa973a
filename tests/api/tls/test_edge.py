"""Both edges behind TLS: who is let in, and what a replaced certificate does to whom."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from tests.api.tls.authority import Authority, Pair, files_of, replace, trust
from tests.api.tls.running import LOOPS, Running, health, running, status
from tests.bounds import ANSWER_S

each_loop = pytest.mark.parametrize("loop", LOOPS)


def is_refused(call: Callable[[], object]) -> bool:
    """Tell whether a connection to one of the edges does not come about."""
    try:
        call()
    except (OSError, grpc.RpcError):
        return True
    return False


def open_to(server: Running, authority: Authority, pair: Pair | None = None) -> tuple[bool, bool]:
    """Tell whether HTTP and gRPC let somebody in."""
    tls = trust(authority, pair)
    return not is_refused(lambda: server.get(tls)), not is_refused(lambda: server.ask(tls))


BOTH = (True, True)
NEITHER = (False, False)


@each_loop
def test_both_edges_speak_tls_and_nothing_else(tmp_path: Path, loop: str) -> None:
    authority = Authority(tmp_path)
    with running(tmp_path, files_of(authority.server()), loop) as server:
        assert server.get(trust(authority)) == 200
        assert server.ask(trust(authority))
        # Neither without it nor with something older.
        with socket.create_connection(("127.0.0.1", server.http_port), ANSWER_S) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in plain.recv(1_000)
        with contextlib.closing(server.channel(None)) as channel:
            assert is_refused(lambda: health(channel))
        assert server.get(trust(authority)) == 200
        assert server.ask(trust(authority))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_is_the_oldest(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = Authority(tmp_path)
    with running(tmp_path, files_of(authority.server())) as server:
        for port in (server.http_port, server.grpc_port):
            context = ssl.create_default_context(cafile=authority.file)
            context.maximum_version = version
            context.set_alpn_protocols(["h2", "http/1.1"])
            with (
                socket.create_connection(("127.0.0.1", port), ANSWER_S) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as secure,
            ):
                assert secure.version() == version.name.replace("_", ".")


@each_loop
def test_a_replaced_certificate_concerns_new_connections_and_leaves_open_ones(
    tmp_path: Path, loop: str
) -> None:
    old, new = Authority(tmp_path), Authority(tmp_path, "new")
    pair = old.server()
    with running(tmp_path, files_of(pair), loop) as server:
        connection, channel = server.connect(trust(old)), server.channel(trust(old))
        with contextlib.closing(connection), contextlib.closing(channel):
            assert (status(connection), health(channel)) == (200, True)
            pair.write(new.issue())
            assert open_to(server, old) == NEITHER
            assert open_to(server, new) == BOTH
            assert (status(connection), health(channel)) == (200, True)
            # Files that do not fit leave everything as it is.
            replace(pair.key, old.issue().private_key_pem.bytes())
            assert open_to(server, new) == BOTH
            pair.certificate.unlink()
            assert open_to(server, new) == BOTH
            assert (status(connection), health(channel)) == (200, True)


@each_loop
def test_with_an_authority_for_clients_only_their_certificates_are_let_in(
    tmp_path: Path, loop: str
) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    good = authority.client()
    with running(tmp_path, files_of(authority.server(), authority.file), loop) as server:
        assert open_to(server, authority, good) == BOTH
        assert open_to(server, authority) == NEITHER
        assert open_to(server, authority, foreign.client("foreign")) == NEITHER
        assert open_to(server, authority, authority.client("expired", days=-1)) == NEITHER
        assert open_to(server, authority, good) == BOTH


@each_loop
def test_an_authority_for_clients_can_be_added_and_removed_while_the_server_runs(
    tmp_path: Path, loop: str
) -> None:
    first, second = Authority(tmp_path), Authority(tmp_path, "second")
    one, two = first.client("one"), second.client("two")
    clients = tmp_path / "clients.pem"
    replace(clients, first.pem)
    with running(tmp_path, files_of(first.server(), clients), loop) as server:
        assert open_to(server, first, one) == BOTH
        assert open_to(server, first, two) == NEITHER
        replace(clients, first.pem + second.pem)
        assert open_to(server, first, one) == open_to(server, first, two) == BOTH
        held = server.connect(trust(first, one))
        with contextlib.closing(held):
            assert status(held) == 200
            replace(clients, second.pem)
            assert open_to(server, first, one) == NEITHER
            assert open_to(server, first, two) == BOTH
            assert status(held) == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_old_session_is_no_way_around_a_new_authority(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    first, second = Authority(tmp_path), Authority(tmp_path, "second")
    clients, one = tmp_path / "clients.pem", first.client("one")
    replace(clients, first.pem)
    context = ssl.create_default_context(cafile=first.file)
    context.load_cert_chain(one.certificate, one.key)
    context.maximum_version = version
    with running(tmp_path, files_of(first.server(), clients)) as server:

        def visit(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
            plain = socket.create_connection(("127.0.0.1", server.http_port), ANSWER_S)
            with (
                plain,
                context.wrap_socket(plain, server_hostname="localhost", session=session) as secure,
            ):
                assert status(secure) == 200
                return secure.session

        session = visit(None)
        replace(clients, second.pem)
        assert is_refused(lambda: visit(session))


def test_a_client_that_never_says_hello_holds_up_nobody(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with running(tmp_path, files_of(authority.server())) as server, contextlib.ExitStack() as stack:
        for port in (server.http_port, server.grpc_port):
            for _ in range(50):
                sock = socket.create_connection(("127.0.0.1", port), ANSWER_S)
                stack.enter_context(sock)
                sock.sendall(b"\x16\x03\x01")
        began = time.monotonic()
        assert open_to(server, authority) == BOTH
        assert time.monotonic() - began < ANSWER_S / 2


def test_a_scrape_shows_until_when_the_certificate_is_valid(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    pair.write(authority.issue(days=10))
    with running(tmp_path, files_of(pair)) as server:

        def days_left() -> float:
            page = server.server.metrics.registry
            name = "tenure_tls_certificate_expiry_timestamp_seconds"
            shown = page.get_sample_value(name)
            assert shown is not None
            return (shown - time.time()) / 86_400

        assert days_left() == pytest.approx(10, abs=0.1)
        pair.write(authority.issue(days=200))
        assert server.get(trust(authority)) == 200
        assert days_left() == pytest.approx(200, abs=0.1)
