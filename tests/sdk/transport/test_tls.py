"""TLS of clients and workers: what they trust and show, and what they say when it fails."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure import TLS, Client, SyncClient, Worker, activity
from tenure.errors import Unavailable
from tenure.sdk.transport import fork_guard
from tenure.sdk.transport.channel import Channel, Method
from tenure.sdk.transport.tls import is_exposed, resolve, system_roots
from tenure.v1 import workflow_service_pb2 as pb
from tests.api.tls.authority import Authority, Pair, files_of, replace, trust
from tests.api.tls.running import Running, running
from tests.bounds import WAIT_S
from tests.polling import eventually

_VARIABLES = ("TENURE_TLS", "TENURE_TLS_CA", "TENURE_TLS_CERT", "TENURE_TLS_KEY", "SSL_CERT_FILE")
HEALTH = Method.of("WorkflowService/HealthCheck", pb.HealthCheckRequest, pb.HealthCheckResponse)


@activity(start_to_close="1m")
async def double(number: int) -> int:
    return 2 * number


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, files_of(authority.server())) as made:
        yield made


async def failure(target: str, tls: TLS | None) -> str:
    """Return what is said of a call that finds no connection."""
    channel = Channel(target, tls=tls)
    try:
        with pytest.raises(Unavailable) as caught:
            await channel.ask(HEALTH, pb.HealthCheckRequest())
    finally:
        await channel.close()
    return caught.value.message


# -- What is said


def test_the_environment_speaks_where_the_code_does_not(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.client()
    assert resolve(None) is None
    assert resolve(tls=True) == TLS()
    monkeypatch.setenv("TENURE_TLS_CA", str(authority.file))
    assert resolve(None) == TLS(ca=str(authority.file))
    assert resolve(tls=False) is None
    assert resolve(tls=True) == TLS()
    monkeypatch.setenv("TENURE_TLS_CERT", str(pair.certificate))
    monkeypatch.setenv("TENURE_TLS_KEY", str(pair.key))
    found = resolve(None)
    assert found is not None
    assert found.paths == (str(authority.file), str(pair.certificate), str(pair.key))
    for text in ("0", "false", "No"):
        monkeypatch.setenv("TENURE_TLS", text)
        assert resolve(None) is None
    for name in _VARIABLES[1:4]:
        monkeypatch.delenv(name)
    for text in ("1", "true", "YES"):
        monkeypatch.setenv("TENURE_TLS", text)
        assert resolve(None) == TLS()
    monkeypatch.setenv("TENURE_TLS", "maybe")
    with pytest.raises(ValueError, match="TENURE_TLS must be 1 or 0"):
        resolve(None)


def test_what_cannot_work_is_refused_when_the_client_is_made(
    authority: Authority, tmp_path: Path
) -> None:
    pair, other = authority.client(), authority.client("other")
    wrong = tmp_path / "wrong.pem"
    replace(wrong, b"no certificate")
    cases: dict[str, Callable[[], TLS]] = {
        "certificate and key, or neither": lambda: TLS(certificate=pair.certificate),
        "cannot be read: No such file": lambda: TLS(ca=tmp_path / "none.pem"),
        "no certificate of an authority": lambda: TLS(ca=wrong),
        "do not belong together": lambda: TLS(certificate=pair.certificate, key=other.key),
        "cannot be read as PEM": lambda: TLS(certificate=wrong, key=pair.key),
    }
    for message, make in cases.items():
        with pytest.raises(ValueError, match=message):
            Client("localhost:1", tls=make())
        with pytest.raises(ValueError, match=message):
            SyncClient("localhost:1", tls=make())
        with pytest.raises(ValueError, match=message):
            Worker("localhost:1", activities=[double], tls=make())
    with pytest.raises(TypeError, match="tls must be"):
        Client("localhost:1", tls="ca.pem")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "is_far"),
    [
        ("localhost:1", False),
        ("127.0.0.9:1", False),
        ("[::1]:1", False),
        ("unix:/run/tenure", False),
        ("dns:///localhost:1", False),
        ("ipv4:127.0.0.1:1", False),
        ("tasks.example.com:1", True),
        ("10.0.0.1:1", True),
        ("dns:///tasks:1", True),
        ("[fd00::1]:1", True),
    ],
)
def test_a_key_that_others_could_read_on_the_way_is_warned_of(
    target: str, is_far: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_exposed([target], "key", None) is is_far
    assert is_exposed(["localhost:1", target], "key", None) is is_far
    assert not is_exposed([target], "", None)
    assert not is_exposed([target], "key", TLS())
    Channel(target, api_key="tnr_id_secret")
    assert ["without TLS" in each.message for each in caplog.records] == [True] * is_far
    assert "tnr_id_secret" not in caplog.text


# -- Connections


async def test_a_client_and_a_worker_speak_tls_with_an_authority_of_their_own(
    authority: Authority, server: Running
) -> None:
    tls = trust(authority)
    worker = Worker(server.target, activities=[double], tls=tls)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(worker.run(handle_signals=False))
        async with Client(server.target, tls=tls) as client:
            assert await client.run(double, 21) == 42
        worker.request_shutdown()


def test_a_synchronous_client_speaks_tls(authority: Authority, server: Running) -> None:
    with SyncClient(server.target, tls=trust(authority)) as client:
        assert client.enqueue(double, 1).describe().state == "pending"


async def test_a_forked_process_speaks_tls_through_its_relay(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_guard, "needs_relay", lambda: True)
    tls = trust(authority, authority.client())
    with running(tmp_path, files_of(authority.server(), authority.file)) as server:
        async with Client(server.target, tls=tls) as client:
            handle = await client.enqueue(double, 1)
            assert (await handle.describe()).state == "pending"
        assert "not trusted" in await failure(server.target, trust(Authority(tmp_path, "other")))


async def test_true_trusts_what_this_machine_trusts(
    authority: Authority, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is not trusted. Name the authority" in await failure(server.target, TLS())
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    async with Client(server.target, tls=True) as client:
        await client.enqueue(double, 1)


def test_the_authorities_of_a_machine_may_be_in_a_folder(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "certs"
    folder.mkdir()
    (folder / "9f1c2a00.0").write_bytes(authority.pem)
    (folder / "README").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    assert system_roots() == authority.pem


async def test_a_replaced_client_certificate_is_used_for_the_next_connection(
    tmp_path: Path,
) -> None:
    old, new = Authority(tmp_path), Authority(tmp_path, "new")
    pair, mine, clients = old.server(), old.client(), tmp_path / "clients.pem"
    replace(clients, old.pem)
    with running(tmp_path, files_of(pair, clients)) as server:
        port = server.grpc_port
        client = Client(server.target, tls=trust(old, mine))
        await client.enqueue(double, 1)
    # While nobody was connected, the authority of the clients has changed.
    replace(clients, new.pem)
    Pair(tmp_path, "client").write(new.issue("client@example.org"))
    with running(tmp_path, files_of(pair, clients), grpc_port=port):
        async with client:
            handle = await client.enqueue(double, 2)
            assert (await handle.describe()).state == "pending"


async def test_files_that_are_gone_for_a_moment_are_waited_for(
    authority: Authority, server: Running
) -> None:
    async with Client(server.target, tls=trust(authority)) as client:
        authority.file.unlink()
        waiting = asyncio.ensure_future(client.enqueue(double, 1))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        replace(authority.file, authority.pem)
        await waiting


# -- What is said when it fails


async def test_each_thing_that_can_be_wrong_is_said_with_what_to_do(
    tmp_path: Path, authority: Authority, server: Running
) -> None:
    other = Authority(tmp_path, "other")
    message = await failure(server.target, trust(other))
    assert "is not trusted. Name the authority that has issued it, with tls=TLS(ca=...)" in message
    message = await failure(server.target, None)
    assert "closed the connection at once. Check the port" in message
    assert "If the server uses TLS, connect with tls=True" in message
    message = await failure(f"localhost:{server.http_port}", trust(authority))
    assert "does not speak gRPC. It may be the HTTP port." in message


async def test_a_certificate_for_another_host_and_an_expired_one_are_not_accepted(
    tmp_path: Path, authority: Authority
) -> None:
    pair = authority.server()
    with running(tmp_path, files_of(pair)) as server:
        pair.write(authority.issue("tasks.example.com"))
        message = await failure(server.target, trust(authority))
        assert "is for another host" in message
        pair.write(authority.issue(days=-1))
        assert "has expired. Replace it" in await failure(server.target, trust(authority))


async def test_a_server_without_tls_is_named_as_such(tmp_path: Path, authority: Authority) -> None:
    with running(tmp_path, None) as server:
        message = await failure(server.target, trust(authority))
    assert "does not speak TLS. Connect without TLS" in message


async def test_a_server_that_wants_a_certificate_of_the_client_is_named_as_such(
    tmp_path: Path, authority: Authority
) -> None:
    with running(tmp_path, files_of(authority.server(), authority.file)) as server:
        message = await failure(server.target, trust(authority))
        assert "It may require a client certificate" in message
        foreign = Authority(tmp_path, "foreign").client("foreign")
        assert "not trust the one it got" in await failure(server.target, trust(authority, foreign))


async def test_nobody_at_home_is_still_said_as_before(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "No server answers at" in await failure(f"localhost:{port}", trust(authority))


async def test_a_worker_says_in_its_log_why_it_cannot_connect_and_goes_on_trying(
    authority: Authority, server: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Authority(tmp_path, "other")
    file = tmp_path / "trusted.pem"
    replace(file, other.pem)
    worker = Worker(server.target, activities=[double], tls=TLS(ca=file))
    with caplog.at_level(logging.WARNING, "tenure.worker"):
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            group.create_task(worker.run(handle_signals=False))
            await eventually(lambda: "is not trusted" in caplog.text, "the line in the log")
            # Once its file is right, it needs no restart.
            replace(file, authority.pem)
            await eventually(lambda: worker.is_registered, "the registration")
            worker.request_shutdown()
