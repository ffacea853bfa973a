"""Certificates and keys replaced and revoked under load: whom it concerns, and how soon."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from tenure import TLS, Client, Handle
from tests.api.tls.authority import Authority, Pair
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak import sdk_activity
from tests.soak.keyed_stream import KINDS, Door, KeyedStream
from tests.soak.result import Result
from tests.soak.rolling import judge
from tests.soak.scene import SCALES, Scale, bound, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.wire.process import Process
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

BATCH: Final = 10
# One server on SQLite; on PostgreSQL a key is revoked at one and ends at the other as well.
SERVERS: Final = {"sqlite": 1, "postgres": 2}
CERTIFICATE_S: Final = 1.0
STREAMS_S: Final = 2.0
# A heartbeat, by which a worker that polls and has nothing to say finds out.
NEW_KEY_S: Final = 12.0
_OUTAGE: Final = "tries again"
# What a poll is told that waits with the old key; it is asked for again with the new one.
_OLD_KEY: Final = "has expired or was revoked"
_NEW_KEY: Final = "now uses a new API key"


class Size(msgspec.Struct, frozen=True):
    """How often both are done, the workers, how long tasks are and how fast they come."""

    rounds: int
    round_s: float
    modes: tuple[str, ...]
    nap_ms: int
    pause_s: float
    scale: Scale


SIZES: Final = {
    False: Size(30, 0.3, ("session", "session", "poll"), 100, 0.1, SCALES[False]),
    True: Size(2, 0.1, ("session", "poll"), 50, 0.2, SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Replace and revoke while workers and clients are busy, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        return await _Rotation(stage, size).play(dialect)

    return await on_both_stores(size.scale, scene)


class _Rotation:
    """One scene on one store."""

    def __init__(self, stage: Stage, size: Size) -> None:
        self._stage = stage
        self._size = size
        self._authority = Authority(stage.folder)
        self._pair = Pair(stage.folder, "server").write(self._authority.issue())
        self._key_file = stage.folder / "worker.key"
        self._handles: list[Handle[None]] = []
        self._complaints: list[str] = []
        self._certificate_s: list[float] = []
        self._ends_s: list[float] = []
        self._keys_s: list[float] = []

    async def play(self, dialect: str) -> list[Result]:
        admin_key = await self._first_key()
        tls = ("--tls-cert", str(self._pair.certificate), "--tls-key", str(self._pair.key))
        servers = [await self._stage.server(*tls) for _ in range(SERVERS[dialect])]
        doors = [self._door(each, admin_key) for each in servers]
        self._write_key(await doors[0].new_key("worker"))
        client_key = await doors[0].new_key("client")
        workers = [
            await self._worker(servers[number % len(servers)], mode)
            for number, mode in enumerate(self._size.modes)
        ]
        async with (
            self._client(servers[0], client_key) as client,
            self._kept(client, doors, client_key) as kept,
        ):
            load = asyncio.ensure_future(self._load(client))
            for number in range(self._size.rounds):
                await self._revoke(client, doors)
                if number % 2:
                    await self._change_key(doors[0], workers)
                await self._replace(doors, servers, client_key)
                await asyncio.sleep(self._size.round_s)
            load.cancel()
            await asyncio.wait([load])
            if not load.cancelled() and (error := load.exception()) is not None:
                self._complaints.append(f"the load ended with {error}")
            self._complaints += [f"{each} was cut off: {each.how}" for each in kept if each.is_over]
            self._complaints += await judge(self._handles, workers)
        self._complaints += ["a worker lost its server" for each in workers if _is_cut_off(each)]
        return self._results(f"rotation, {dialect}", len(kept))

    def _results(self, name: str, kept_count: int) -> list[Result]:
        name = f"{name}, {self._size.rounds} rounds"
        scale = self._size.scale
        return [
            bound(
                f"{name}: a connection with the new certificate",
                CERTIFICATE_S,
                max(self._certificate_s),
                scale,
            ),
            bound(
                f"{name}: the end of {len(self._ends_s)} streams of revoked keys",
                STREAMS_S,
                max(self._ends_s),
                scale,
            ),
            bound(
                f"{name}: {len(self._size.modes)} workers with a new key",
                NEW_KEY_S,
                max(self._keys_s),
                scale,
            ),
            spotless(
                f"{name}: everybody else",
                "no call fails, no stream ends, every task has one start and is not charged",
                f"{len(self._handles)} tasks, {kept_count} streams of other keys",
                self._complaints,
            ),
        ]

    # -- The cast

    async def _first_key(self) -> str:
        """Make the key of the operator in the store, before there is a server."""
        process = await Process.spawn(
            ("-m", "tenure.cli", "keys", "create", "--role", "admin", "--store", self._stage.store),
            self._stage.folder / "keys.log",
        )
        said = (await process.stdout.read()).decode().strip()
        assert await process.wait(WORK_S) == 0
        return said

    def _door(self, server: ServerProcess, admin_key: str) -> Door:
        return Door(server.grpc, server.http, self._authority.file, admin_key)

    async def _worker(self, server: ServerProcess, mode: str) -> SdkWorker:
        files = (str(self._key_file), str(self._authority.file))
        options = ("--api-key-file", files[0], "--tls-ca", files[1])
        return await SdkWorker.start(self._stage, server.grpc, mode=mode, options=options)

    def _client(self, server: ServerProcess, key: str) -> Client:
        return Client(server.grpc, api_key=key, tls=TLS(ca=self._authority.file))

    @contextlib.asynccontextmanager
    async def _kept(
        self, client: Client, doors: Sequence[Door], key: str
    ) -> AsyncIterator[list[KeyedStream]]:
        """Keep streams open with a key that nobody revokes; sessions are kept by the workers."""
        kinds = [each for each in KINDS if each != "session"]
        async with self._streams(client, doors, key, kinds) as made:
            yield made

    @contextlib.asynccontextmanager
    async def _streams(
        self, client: Client, doors: Sequence[Door], key: str, kinds: Sequence[str]
    ) -> AsyncIterator[list[KeyedStream]]:
        handle = await client.enqueue(sdk_activity.nap, 0)
        await handle.result(timeout=WORK_S)
        made = [KeyedStream(door, kind, key, handle.task_id) for door in doors for kind in kinds]
        try:
            async with asyncio.timeout(WORK_S):
                await asyncio.gather(*(each.opened() for each in made))
            yield made
        finally:
            await asyncio.gather(*(each.close() for each in made))

    async def _load(self, client: Client) -> None:
        while True:
            calls = [sdk_activity.nap.call(self._size.nap_ms) for _ in range(BATCH)]
            # What was asked for counts, also when the load is stopped meanwhile.
            enqueued = asyncio.ensure_future(client.enqueue_many(calls))
            enqueued.add_done_callback(self._note)
            await asyncio.shield(enqueued)
            await asyncio.sleep(self._size.pause_s)

    def _note(self, enqueued: asyncio.Future[list[Handle[None]]]) -> None:
        if not enqueued.cancelled() and enqueued.exception() is None:
            self._handles += enqueued.result()

    # -- What is done

    async def _revoke(self, client: Client, doors: Sequence[Door]) -> None:
        """Revoke a key at the first server; its streams end everywhere, and it opens none."""
        key = await doors[0].new_key("worker")
        async with self._streams(client, doors, key, KINDS) as streams:
            began_s = time.monotonic()
            await doors[0].revoke(key)
            async with asyncio.timeout(WORK_S):
                for each in streams:
                    self._ends_s.append(await each.ended_s() - began_s)
            self._complaints += [
                f"{each} ended with {each.how}" for each in streams if not each.is_refused
            ]
            again = [KeyedStream(each.door, each.kind, key, each.task_id) for each in streams]
            async with asyncio.timeout(WORK_S):
                for stream in again:
                    await stream.ended_s()
            self._complaints += [f"{each} was opened again" for each in again if each.was_open]

    async def _change_key(self, door: Door, workers: Sequence[SdkWorker]) -> None:
        """Give the workers a new key while they work, and revoke the old one."""
        old, told = self._key_file.read_text(), [each.log.count(_NEW_KEY) for each in workers]
        began_s = time.monotonic()
        self._write_key(await door.new_key("worker"))
        await eventually(
            lambda: all(
                worker.log.count(_NEW_KEY) > count
                for worker, count in zip(workers, told, strict=True)
            ),
            "all workers with their new key",
            within_s=WORK_S,
        )
        self._keys_s.append(time.monotonic() - began_s)
        await door.revoke(old)

    def _write_key(self, key: str) -> None:
        """Write a key as a secret is mounted: whole, and at once."""
        new = self._key_file.with_suffix(".new")
        new.write_text(key)
        new.replace(self._key_file)

    async def _replace(
        self, doors: Sequence[Door], servers: Sequence[ServerProcess], client_key: str
    ) -> None:
        """Replace the certificate; the next connection to each port is opened with it."""
        issued = self._authority.issue()
        self._pair.write(issued)
        began_s = time.monotonic()
        wanted = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())
        async with asyncio.timeout(WORK_S):
            for door in doors:
                for address in (door.grpc, door.http):
                    while await door.certificate(address) != wanted:
                        pass
        self._certificate_s.append(time.monotonic() - began_s)
        for server in servers:
            async with self._client(server, client_key) as client:
                await (await client.enqueue(sdk_activity.nap, 0)).result(timeout=WORK_S)


def _is_cut_off(worker: SdkWorker) -> bool:
    return any(_OUTAGE in line and _OLD_KEY not in line for line in worker.log.splitlines())
