"""What a web page of another site can do to an open server: nothing, and see nothing.

The requests are the bytes that browsers send for a cross-site POST, for one whose answer the page
may not see, and for a page whose name was made to point at this machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import httpx
import pytest
import structlog

from tenure.api.http.edge.app import make_app
from tenure.api.readiness import Readiness
from tenure.api.setting import Address, ServerSettings
from tenure.v1 import admin_service_pb2 as admin_pb
from tests.api.access.keyed_server import FREE, KeyedServer, bearer
from tests.api.http.site import Site, site_of
from tests.engine.world import NAMESPACE, World
from tests.security.web_page import EVIL, answered, request, rpc_request

KEY: Final = b'{"role": "admin", "name": "mine"}'
TASK: Final = b'{"type": "mail", "queue": "q", "startToCloseMs": 1000}'
# What would hurt, as method, path and body.
HARM: Final = (
    ("POST", f"/v1/namespaces/{NAMESPACE}/disable", b""),
    ("POST", "/v1/api-keys", KEY),
    ("POST", "/v1/tasks", TASK),
    ("DELETE", "/v1/api-keys/aaaaaaaaaaaaaaaa", b""),
    ("GET", "/v1/tasks", b""),
    ("GET", "/v1/events", b""),
    ("GET", "/metrics", b""),
    ("GET", "/openapi.json", b""),
    ("GET", "/docs", b""),
    ("GET", "/nothing", b""),
    ("OPTIONS", "/v1/api-keys", b""),
)
JSON: Final = {"Content_Type": "application/json"}
PLAIN: Final = {"Content_Type": "text/plain;charset=UTF-8"}
# What tells a page of another site from ours; browsers of some age send only one of these.
FOREIGN: Final = {
    "both": {"Origin": EVIL, "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
    "origin": {"Origin": EVIL},
    "sandboxed": {"Origin": "null"},
    "site": {"Sec_Fetch_Site": "cross-site"},
    "same site": {"Sec_Fetch_Site": "same-site"},
    "new kind of site": {"Sec_Fetch_Site": "near"},
    "another port": {"Origin": "http://127.0.0.1:1"},
    "another scheme": {"Origin": "file://"},
    "longer name": {"Origin": "http://127.0.0.1.evil.example"},
}


@pytest.fixture
async def site(embedded: World) -> AsyncIterator[Site]:
    """An open server that is known under one more name."""
    engine = await embedded.start()
    settings = ServerSettings(allow_hosts=("tenure.internal", "2001:db8::1"))
    app = make_app(engine, settings, Readiness(engine))
    async with site_of(embedded, engine, app) as made:
        yield made


async def _refused(site: Site, data: bytes) -> str:
    """Return the message of a refusal that must be the one for web pages."""
    status, body = answered(await site.raw(data))
    assert status == 403, (data, body)
    assert b'"error":"permission_denied"' in body
    return body.decode()


@pytest.mark.parametrize("case", FOREIGN)
async def test_a_page_of_another_site_is_refused(site: Site, case: str) -> None:
    before = await site.world.dump()
    for host in (f"127.0.0.1:{site.port}", f"localhost:{site.port}", "tenure.internal"):
        for method, path, body in HARM:
            for kind in (JSON, PLAIN):
                sent = request(method, path, host, body, **kind, **FOREIGN[case])
                assert "tenure keys create" in await _refused(site, sent)
    assert await site.world.dump() == before


@pytest.mark.parametrize("mode", ["no-cors", "navigate"])
async def test_a_form_or_a_request_without_an_answer_reaches_no_handler(
    site: Site, mode: str
) -> None:
    before = await site.world.dump()
    for method, path, body in HARM:
        if method != "GET":
            host = f"127.0.0.1:{site.port}"
            await _refused(site, request(method, path, host, body, **PLAIN, Sec_Fetch_Mode=mode))
    assert await site.world.dump() == before


async def test_a_page_whose_name_was_made_to_point_here_is_refused(site: Site) -> None:
    """For the browser it is the page of this server: it says same-origin."""
    before = await site.world.dump()
    for name in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "x.localhost"):
        host = f"{name}:{site.port}"
        ours = {"Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
        for method, path, body in HARM:
            for kind in (JSON, PLAIN):
                said = await _refused(site, request(method, path, host, body, **kind, **ours))
                assert "--allow-host" in said
                assert name not in said
    assert await site.world.dump() == before


@pytest.mark.parametrize("host", ["", "@", "localhost@evil.example", "[::1", "::1", "localhost:x"])
async def test_what_is_no_host_is_refused(site: Site, host: str) -> None:
    await _refused(site, request("GET", "/v1/tasks", host))


async def test_a_request_without_a_host_is_refused(site: Site) -> None:
    await _refused(site, b"GET /v1/tasks HTTP/1.0\r\n\r\n")


HOSTS: Final = (
    "127.0.0.1",
    "127.9.9.9:80",
    "[::1]:7300",
    "localhost",
    "LOCALHOST:7300",
    "Tenure.Internal:443",
    "[2001:db8::1]",
)


@pytest.mark.parametrize("host", HOSTS)
async def test_a_name_of_this_machine_and_one_that_was_given_are_served(
    site: Site, host: str
) -> None:
    path = f"/v1/tasks?namespace={NAMESPACE}"
    ours = {"Origin": f"http://{host.lower()}", "Sec_Fetch_Site": "same-origin"}
    assert answered(await site.raw(request("GET", path, host)))[0] == 200
    assert answered(await site.raw(request("POST", path, host, TASK, **JSON, **ours)))[0] == 201
    typed = {"Sec_Fetch_Site": "none", "Sec_Fetch_Mode": "navigate"}
    assert answered(await site.raw(request("GET", "/docs", host, b"", **typed)))[0] == 200
    await _refused(site, request("POST", path, host, TASK, **JSON, Sec_Fetch_Site="none"))


async def test_the_address_that_is_listened_on_is_a_name_of_the_server(embedded: World) -> None:
    engine = await embedded.start()
    settings = ServerSettings(http=Address("192.0.2.7", 7300), is_insecure=True)
    app = make_app(engine, settings, Readiness(engine))
    async with site_of(embedded, engine, app) as site:
        assert answered(await site.raw(request("GET", "/docs", "192.0.2.7:7300")))[0] == 200
        await _refused(site, request("GET", "/docs", "192.0.2.8:7300"))


async def test_probes_are_answered_under_any_name(site: Site) -> None:
    for path in FREE:
        sent = request("GET", path, "10.1.2.3:7300", Origin=EVIL)
        assert answered(await site.raw(sent))[0] in {200, 503}


async def test_a_server_with_keys_looks_at_the_key_alone(site: Site, lobby: KeyedServer) -> None:
    del site
    key = await lobby.make_key("admin")
    headers = {**bearer(key), "host": "tenure.example", "origin": EVIL}
    answer = await lobby.site.client.get("/v1/tasks", headers=headers)
    assert answer.status_code == httpx.codes.OK
    assert not [name for name in answer.headers if name.startswith("access-control")]
    # A page does not have the key, and the question whether it may send one gets no yes.
    for method, path, body in HARM:
        sent = request(method, path, f"127.0.0.1:{lobby.site.port}", body, **PLAIN, Origin=EVIL)
        assert answered(await lobby.site.raw(sent))[0] == 401


async def test_a_refused_page_is_logged_with_the_reason(site: Site) -> None:
    with structlog.testing.capture_logs() as logs:
        await site.raw(request("POST", "/v1/tasks", "evil.example", TASK, **JSON))
    denied = [each for each in logs if each["event"] == "access.denied"]
    assert [(each["code"], each["reason"]) for each in denied] == [
        ("permission_denied", "foreign_host")
    ]
    assert "evil" not in str(logs)


# -- gRPC

CREATE: Final = "/tenure.v1.AdminService/CreateApiKey"
_NEW: Final = admin_pb.CreateApiKeyRequest(name="mine", role=admin_pb.ROLE_ADMIN)
ADMIN: Final = _NEW.SerializeToString()
GRPC: Final = {"te": "trailers", "content_type": "application/grpc"}


async def _sent(lobby: KeyedServer, data: bytes) -> bytes:
    """Return all that the gRPC port says to some bytes before it closes or rests."""
    address = lobby.wire.address
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(data)
    said = b""
    try:
        async with asyncio.timeout(1):
            while data := await reader.read(65_536):
                said += data
    except (TimeoutError, ConnectionResetError):
        pass
    writer.close()
    return said


async def _has_keys(lobby: KeyedServer) -> bool:
    return bool((await lobby.world.dump("api_keys"))["api_keys"])


async def test_the_grpc_port_takes_no_request_of_a_page(lobby: KeyedServer) -> None:
    host = str(lobby.wire.address)
    call = rpc_request(CREATE, ADMIN, **GRPC)
    page = {"origin": EVIL, "sec_fetch_site": "cross-site"}
    for data in (
        request("POST", CREATE, host, ADMIN, **PLAIN, Origin=EVIL),
        # What a page sends as a body is the beginning of nothing.
        request("POST", CREATE, host, call, **PLAIN, Origin=EVIL),
        request("POST", CREATE, host, Upgrade="h2c", HTTP2_Settings="AAMAAABkAAQAAP__"),
        # With TLS a browser speaks HTTP/2; some send te, none can send another content type.
        rpc_request(CREATE, ADMIN, content_type="text/plain", **page),
        rpc_request(CREATE, ADMIN, te="trailers", content_type="text/plain", **page),
        rpc_request(CREATE, ADMIN, **GRPC, origin=EVIL),
        rpc_request(CREATE, ADMIN, **GRPC, sec_fetch_site="same-site"),
    ):
        said = await _sent(lobby, data)
        assert not said.startswith(b"HTTP/1.1 2")
        assert b"tnr_" not in said
        assert not await _has_keys(lobby), data
    # The same bytes without what marks a page are a call.
    assert b"tnr_" in await _sent(lobby, call)
    assert await _has_keys(lobby)
