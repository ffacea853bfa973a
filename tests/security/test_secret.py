"""A secret that goes in through every door comes out through none but the one it was asked at."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
import pytest

from tenure import Client, SyncClient, Worker
from tenure.errors import TenureError
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import task_service_pb2 as task_pb
from tests.api.access.keyed_server import bearer, shown
from tests.api.rpc.wire import Wire
from tests.bounds import WAIT_S
from tests.cli.conftest import invoke
from tests.cli.server import CLI
from tests.polling import eventually_sync
from tests.sdk.client.stage import double
from tests.secret_scan import CANARY, leaks

QUEUE: Final = "default"
# Which options a server process gets so that it says all it ever says.
LOUD: Final = ("--log-level", "debug")
TASK: Final = {"type": "untyped", "queue": QUEUE, "startToCloseMs": 60_000}


class Ear:
    """A server process with keys, and all that anybody heard of it."""

    def __init__(self, folder: Path, form: str) -> None:
        self.url = f"sqlite:///{folder}/tenure.db"
        self.log = folder / "log"
        self.form = form
        self.heard: list[str] = []
        made = invoke("keys", "create", "--role", "admin", "--store", self.url)
        self.key = made.stdout.strip()
        self.secret = self.key.split("_", 2)[2]
        self.wrong = self.key[:-6] + CANARY[-6:]
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    *(*CLI, "server", "--store", self.url, "--http", "127.0.0.1:0"),
                    *("--grpc", "127.0.0.1:0", "--log-format", form, *LOUD),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        eventually_sync(lambda: "server.started" in self.log.read_text(), "a server that listens")
        self.http, self.grpc = (self._address(edge) for edge in ("http", "grpc"))

    def _address(self, edge: str) -> str:
        found = re.search(rf'\b{edge}"?[=:] ?"?(127\.0\.0\.1:\d+)', self.log.read_text())
        assert found is not None
        return found[1]

    def close(self) -> None:
        self.process.terminate()
        said, _ = self.process.communicate(timeout=WAIT_S)
        self.heard += [said, self.log.read_text()]

    def run(self, *arguments: str, key: str = "") -> None:
        """Run a command and hear all that it says."""
        env = {"TENURE_TARGET": self.grpc, "TENURE_API_KEY": key or self.key}
        result = invoke(*arguments, env=env)
        self.heard += [result.stdout, result.stderr]


@pytest.fixture
def ear(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ear]:
    made = Ear(tmp_path, request.param)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.communicate()


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TENURE_") and not name.startswith("TENURE_TEST_"):
            monkeypatch.delenv(name)


async def _by_http(ear: Ear) -> None:
    """Send the secrets where they belong and where they do not."""
    canary, key, wrong = CANARY, ear.key, ear.wrong
    async with httpx.AsyncClient(base_url=f"http://{ear.http}", trust_env=False) as client:

        async def ask(
            method: str, path: str, *, hears: bool = True, **options: Any
        ) -> httpx.Response:
            headers = {**bearer(key), **options.pop("headers", {})}
            answer = await client.request(method, path, headers=headers, **options)
            if hears:
                ear.heard += [answer.text, str(answer.headers)]
            return answer

        made = (await ask("POST", "/v1/tasks", json={**TASK, "input": {"card": canary}})).json()
        path = f"/v1/tasks/{made['taskId']}"
        await ask("GET", path, hears=False)
        error = {"message": canary, "type": canary, "stackTrace": canary, "details": [canary]}
        for body in (
            {"outcome": "FAILED", "error": error},
            {"outcome": "SUCCEEDED", "output": canary},
            {"outcome": canary},
            {"outcome": "SUCCEEDED", "outputBase64": canary},
            {"more": canary},
        ):
            await ask("POST", f"{path}/complete", json=body)
        for bad in ([canary], canary, {**TASK, "input": canary, "priority": canary}):
            await ask("POST", "/v1/tasks", json=bad)
        await ask("POST", "/v1/tasks", content=f'{{"input": "{canary}"'.encode())
        for each in (key, wrong):
            for target in ("/v1/tasks", "/nothing", f"/v1/tasks?key={each}", f"/v1/tasks/{each}"):
                await ask("GET", target, hears="/v1/tasks/" not in target, headers=bearer(each))
            await ask("GET", "/v1/tasks", hears=False, headers={"x-request-id": each})
            await ask("GET", "/v1/tasks", headers={"authorization": f"Basic {each}"})
            await ask("GET", "/v1/tasks", hears=False, headers={"tenure-namespace": each})
            await ask("GET", f"/v1/api-keys/{each}")
            await ask("DELETE", f"/v1/api-keys/{each}")
        await ask("GET", "/v1/tasks", headers={"authorization": f"Bearer {canary}"})
        for target in ("/metrics", "/docs", "/openapi.json", "/v1/audit", "/v1/api-keys"):
            assert (await ask("GET", target)).status_code == 200
        for target in ("/v1/diagnosis", f"{path}/explain", "/v1/tasks", "/v1/workers"):
            await ask("GET", target)


async def _by_grpc(ear: Ear) -> None:
    """Fail and succeed with payloads, and show wrong keys."""
    async with grpc.aio.insecure_channel(ear.grpc) as channel:
        wire = Wire(channel, None, None)  # type: ignore[arg-type]  # a server of another process
        new = wire.new("untyped", task_queue=QUEUE, input=CANARY.encode())
        enqueue = task_pb.EnqueueTasksRequest(tasks=[new])
        await wire.tasks.EnqueueTasks(enqueue, metadata=shown(ear.key))
        bad = task_pb.CompleteByTokenRequest(task_token=CANARY, output=CANARY.encode())
        calls: list[Callable[[], Any]] = [
            lambda: wire.tasks.CompleteByToken(bad),
            lambda: wire.tasks.EnqueueTasks(enqueue, metadata=shown(ear.wrong)),
            lambda: wire.tasks.EnqueueTasks(enqueue, metadata=(("x", ear.key),)),
            lambda: wire.admin.GetApiKey(
                admin_pb.GetApiKeyRequest(key_id=ear.key), metadata=shown(ear.key)
            ),
        ]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call()
            ear.heard.append(repr(failure.value))


async def _by_sdk(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker fail with it and a client wait for it; nobody shows the key."""
    monkeypatch.setenv("TENURE_API_KEY", ear.key)
    worker = Worker(ear.grpc, activities=[double], api_key=ear.key)
    async with Client(ear.grpc, api_key=ear.key) as client:
        handle = await client.enqueue_named("nobody", {"card": CANARY}, start_to_close="9s")
        heard = [
            client,
            client.handle(handle.task_id),
            handle,
            worker,
            client.completion(token=CANARY),
        ]
        ear.heard += [text for each in heard for text in (repr(each), str(each))]
    with SyncClient(ear.grpc, api_key=ear.key) as sync:
        ear.heard.append(repr(sync))
    for each in (ear.wrong, CANARY, f"tnr_{CANARY}"):
        try:
            async with Client(ear.grpc, api_key=each) as client:
                await client.enqueue(double, 1)
        except (TenureError, ValueError) as error:
            ear.heard += [repr(error), str(error)]


def _by_cli(ear: Ear, folder: Path) -> None:
    """Ask for everything with the key in its place, and put it where it does not belong."""
    for arguments in (
        ("keys", "list"),
        ("keys", "list", "-o", "json"),
        ("keys", "show", ear.key.split("_")[1]),
        ("keys", "show", ear.key),
        ("keys", "revoke", ear.key),
        ("audit",),
        ("doctor",),
        ("tasks", "list", "-o", "json"),
        ("workers", "list"),
        ("namespaces", "list"),
        ("--help",),
    ):
        ear.run(*arguments)
    ear.run("tasks", "list", key=ear.wrong)
    ear.run("tasks", "list", key=CANARY)
    dsn = f"postgresql://tenure:{CANARY}@127.0.0.1:1/tenure"
    ear.run("keys", "create", "--role", "admin", "--store", dsn)
    ear.run("db", "check", "--store", dsn)
    bad = folder / "key.pem"
    bad.write_text(f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n")
    bad.chmod(0o600)
    tls = ("--tls-cert", str(bad), "--tls-key", str(bad))
    form = ("--log-format", ear.form, *LOUD)
    for command in (
        ("server", "--store", dsn, *form),
        ("server", "--store", f"sqlite:///{folder}/x.db", *tls, *form),
    ):
        made = subprocess.run(
            [*CLI, *command], capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert made.returncode
        ear.heard += [made.stdout, made.stderr]


@pytest.mark.parametrize("ear", ["json", "text"], indirect=True)
async def test_secrets_that_go_in_everywhere_come_out_nowhere(
    ear: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _by_http(ear)
    await _by_grpc(ear)
    await _by_sdk(ear, monkeypatch)
    await asyncio.to_thread(_by_cli, ear, tmp_path)
    await asyncio.to_thread(ear.close)
    assert not leaks(ear.heard), "\n".join(leaks(ear.heard))
    # Not even a part of a secret.
    for part in (ear.secret, ear.secret[:20], ear.secret[-20:]):
        assert not [text[:300] for text in ear.heard if part in text]
    log = ear.heard[-1]
    for event in ("http.request", "rpc.refused", "access.denied"):
        assert event in log
    if log.startswith("{"):
        assert all(json.loads(line) for line in log.splitlines())
