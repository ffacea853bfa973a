"""What a server remembers of keys and namespaces, and how it hears of changes by others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from tenure.core.access.api_key import ApiKey, Role
from tenure.engine.access import command as c
from tenure.engine.engine import Engine
from tenure.engine.read import access as access_read
from tenure.engine.services.key_use import KeyUse
from tenure.errors import Unavailable, WrongState
from tenure.store.failure import Lost
from tenure.store.sqlite import SqliteStore
from tenure.store.transaction import Body, Store
from tests.engine.world import NAMESPACE, NEVER_MS, Clock, Faults, World
from tests.polling import eventually

T = TypeVar("T")
UNKNOWN_KEY = "a" * 16
# How this server hears: by hints alone, or, without any, by looking.
HINTED: dict[str, Any] = {"fallback_poll_ms": NEVER_MS, "news_poll_ms": 20}
LOOKING: dict[str, Any] = {"fallback_poll_ms": 20, "news_poll_ms": 20}


@pytest.fixture(params=["hinted", "looking", "pooled"])
async def here(request: pytest.FixtureRequest, world: World) -> Engine:
    """The server that has to hear: told by hints, looking by itself, or behind a pooler."""
    settings = HINTED if request.param == "hinted" else LOOKING
    return await world.start(pooled=request.param == "pooled", **settings)


@pytest.fixture
async def there(here: Engine, world: World) -> Engine:
    """The server that changes something."""
    del here
    return await world.start()


async def make(engine: Engine, role: Role = Role.ADMIN, **fields: Any) -> ApiKey:
    command = c.CreateKey(**{"name": "ci", "role": role, **fields})
    return (await engine.submit(command)).key


async def set_namespace(engine: Engine, *, is_disabled: bool) -> None:
    await engine.submit(c.SetNamespace(name=NAMESPACE, is_disabled=is_disabled))


class LateReads:
    """A store that somebody else has opened, and whose reads come back when the test lets them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_shared = store.is_shared
        self.has_read = asyncio.Event()
        self.is_let = asyncio.Event()
        self.is_let.set()

    async def open(self) -> None:
        """Leave it as it is: opened twice, it would lose the connections of its first pool."""

    async def close(self) -> None:
        """Leave it to who has opened it."""

    async def read(self, body: Body[T]) -> T:
        found = await self._store.read(body)
        if not self.is_let.is_set():
            self.has_read.set()
            await self.is_let.wait()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class TestOthers:
    async def test_keys_that_others_make_and_revoke_are_heard_of(
        self, here: Engine, there: Engine
    ) -> None:
        key = await make(there)
        await eventually(lambda: here.access_cache.find(key.id) == key)
        assert here.access_cache.has_keys
        await there.submit(c.RevokeKey(key_id=key.id))
        await eventually(lambda: here.access_cache.find(key.id) is None)
        assert here.access_cache.has_keys

    async def test_namespaces_that_others_disable_and_enable_are_heard_of(
        self, world: World, here: Engine, there: Engine
    ) -> None:
        worker = await world.worker(here)
        sink, _ = await world.session(here, worker)
        poller = await world.worker(here)
        await world.add(here)
        poll = world.poll(here, poller, types=frozenset({"mail"}), wait_ms=60_000)
        await eventually(lambda: len(sink.given) == 1)
        sink.take()
        await set_namespace(there, is_disabled=True)
        with pytest.raises(WrongState):
            await poll
        with pytest.raises(WrongState):
            await world.add(here)
        await set_namespace(there, is_disabled=False)
        # What others have enabled is read when it is asked for, before it is heard of.
        await world.add(here)
        await eventually(lambda: len(sink.given) == 1)

    async def test_listeners_are_called_after_each_change(
        self, here: Engine, there: Engine
    ) -> None:
        seen: list[bool] = []
        key = await make(there)
        await eventually(lambda: here.access_cache.find(key.id))

        def broken() -> None:
            raise ZeroDivisionError

        here.access_cache.on_change(broken)
        here.access_cache.on_change(lambda: seen.append(here.access_cache.find(key.id) is None))
        await there.submit(c.RevokeKey(key_id=key.id))
        await eventually(lambda: True in seen)

    async def test_a_poll_that_was_accepted_before_it_was_heard_of_does_not_wait(
        self, world: World
    ) -> None:
        there = await world.start()
        is_slow = asyncio.Event()

        async def pause(point: str) -> None:
            if point == "after commit" and is_slow.is_set():
                is_slow.clear()
                await set_namespace(there, is_disabled=True)
                await late.access_cache.load()

        late = Engine(
            world.database.store(Faults()),
            clock=world.clock,
            settings=there.settings,
            services=(),
            pause=pause,
        )
        async with late:
            worker = await world.worker(late)
            is_slow.set()
            with pytest.raises(WrongState):
                await world.poll(late, worker, wait_ms=60_000)


class TestLookUp:
    async def test_a_key_that_was_made_elsewhere_a_moment_ago_is_found(self, world: World) -> None:
        here, there = await world.start(pooled=True), await world.start(pooled=True)
        key = await make(there)
        assert here.access_cache.find(key.id) is None
        assert await here.access_cache.look_up(key.id) == key
        assert here.access_cache.find(key.id) == key

    async def test_what_is_known_is_not_read_again(self, world: World) -> None:
        faults = Faults()
        engine = await world.start(faults=faults)
        key = await make(engine, expires_in_ms=1_000)
        faults.points.clear()
        assert await engine.access_cache.look_up(key.id) == key
        await world.advance(1_000)
        assert await engine.access_cache.look_up(key.id) is None
        assert faults.points == []

    async def test_many_who_show_unknown_keys_cost_few_reads(self, world: World) -> None:
        faults = Faults()
        engine = await world.start(faults=faults)
        faults.points.clear()
        look_up = engine.access_cache.look_up
        found = await asyncio.gather(*(look_up(f"{n:a>16}") for n in range(500)))
        assert set(found) == {None}
        assert 0 < faults.points.count("read_access") <= 2
        assert "list_live_api_keys" not in faults.points

    async def test_without_the_store_an_unknown_key_is_unavailable_and_a_known_one_good(
        self, world: World
    ) -> None:
        faults = Faults()
        engine = await world.start(faults=faults)
        key = await make(engine)
        faults.raise_at("read_access", Lost("cut"))
        with pytest.raises(Unavailable) as caught:
            await engine.access_cache.look_up(UNKNOWN_KEY)
        assert caught.value.fields == {"reason": "store_unreachable", "retry_after_ms": 500}
        assert await engine.access_cache.look_up(key.id) == key
        assert await engine.access_cache.look_up(UNKNOWN_KEY) is None

    async def test_a_mistake_of_ours_is_unavailable_too(self, world: World) -> None:
        faults = Faults()
        engine = await world.start(faults=faults)
        faults.raise_at("read_access", ZeroDivisionError())
        with pytest.raises(Unavailable):
            await engine.access_cache.look_up(UNKNOWN_KEY)

    async def test_who_waits_while_the_server_stops_is_told(self, world: World) -> None:
        engine = await world.start()
        waiting = asyncio.create_task(engine.access_cache.look_up(UNKNOWN_KEY))
        await asyncio.sleep(0)
        await world.stop(engine)
        with pytest.raises(Unavailable) as caught:
            await waiting
        assert caught.value.fields["reason"] == "shutting_down"
        with pytest.raises(Unavailable):
            await engine.access_cache.look_up(UNKNOWN_KEY)


class TestFile:
    """A file belongs to one server, which knows all that there is."""

    async def test_what_is_not_known_is_not_there_and_not_read(self, tmp_path: Path) -> None:
        faults = Faults()
        path = str(tmp_path / "tenure.db")
        clock = Clock()
        store = SqliteStore(path, clock=clock.now_ms, synchronous="OFF", probe=faults)
        async with Engine(store, clock=clock, services=()) as engine:
            key = await make(engine, expires_in_ms=1_000)
            assert engine.access_cache.find(key.id) == key
            faults.points.clear()
            assert await engine.access_cache.look_up(UNKNOWN_KEY) is None
            assert faults.points == []
            clock.advance(1_000)
            assert engine.access_cache.find(key.id) is None

    async def test_a_commit_whose_answer_was_lost_is_looked_for(self, tmp_path: Path) -> None:
        faults = Faults()
        path = str(tmp_path / "tenure.db")
        clock = Clock()
        store = SqliteStore(path, clock=clock.now_ms, synchronous="OFF", probe=faults)
        async with Engine(store, clock=clock, services=()) as engine:
            key = await make(engine)
            faults.raise_at("after COMMIT", Lost("cut"))
            with pytest.raises(Unavailable):
                await engine.submit(c.RevokeKey(key_id=key.id))
            await eventually(lambda: engine.access_cache.find(key.id) is None)


class TestOwn:
    async def test_a_picture_from_before_an_own_change_is_not_taken(
        self, world: World, engine: Engine
    ) -> None:
        key = await make(engine)
        store = LateReads(engine.store)
        late = Engine(
            cast("Store", store), clock=world.clock, services=(), settings=engine.settings
        )
        await late.start()
        assert late.access_cache.find(key.id) == key
        store.is_let.clear()
        loading = asyncio.create_task(late.access_cache.load())
        await store.has_read.wait()
        await late.submit(c.RevokeKey(key_id=key.id))
        store.is_let.set()
        await loading
        assert late.access_cache.find(key.id) is None
        await late.stop()

    async def test_a_change_after_those_of_others_brings_these_too(self, world: World) -> None:
        here, there = await world.start(pooled=True), await world.start(pooled=True)
        theirs = await make(there)
        ours = await make(here)
        assert here.access_cache.find(ours.id) == ours
        await eventually(lambda: here.access_cache.find(theirs.id) == theirs)

    async def test_a_commit_whose_answer_was_lost_is_looked_for(self, world: World) -> None:
        engine = await world.start()
        key = await make(engine)
        world.faults.raise_at("after COMMIT", Lost("cut"))
        with pytest.raises(Unavailable):
            await engine.submit(c.RevokeKey(key_id=key.id))
        await eventually(lambda: engine.access_cache.find(key.id) is None)

    async def test_a_database_that_was_set_back_is_believed(self, world: World) -> None:
        engine = await world.start()
        key = await make(engine)
        await world.database.execute("DELETE FROM api_keys")
        await world.database.execute("UPDATE access SET version = version - 1")
        await engine.access_cache.look_up(UNKNOWN_KEY)
        assert engine.access_cache.find(key.id) is None
        assert engine.access_cache.has_keys


class TestExpiry:
    async def test_an_expired_key_is_not_found_from_the_very_instant(
        self, world: World, engine: Engine
    ) -> None:
        key = await make(engine, expires_in_ms=60_000)
        await world.advance(59_999)
        assert engine.access_cache.find(key.id) == key
        assert engine.access_cache.has_admin
        await world.advance(1)
        assert engine.access_cache.find(key.id) is None
        assert not engine.access_cache.has_admin

    async def test_listeners_are_called_when_a_key_expires(
        self, world: World, engine: Engine
    ) -> None:
        key = await make(engine, expires_in_ms=30)
        called: list[bool] = []
        engine.access_cache.on_change(
            lambda: called.append(engine.access_cache.find(key.id) is None)
        )
        # The timer is on the real clock, and looks again while ours stands.
        await asyncio.sleep(0.05)
        assert called == []
        await world.advance(30)
        await eventually(lambda: called == [True])

    async def test_the_time_is_the_store_s(self, world: World, engine: Engine) -> None:
        key = await make(engine, expires_in_ms=60_000)
        await world.jump(60_000)
        await engine.access_cache.look_up(UNKNOWN_KEY)
        assert engine.access_cache.find(key.id) is None


class TestAdministrators:
    @pytest.mark.parametrize(
        ("role", "namespaces", "is_admin"),
        [(Role.ADMIN, (), True), (Role.ADMIN, (NAMESPACE,), False), (Role.CLIENT, (), False)],
    )
    async def test_only_an_admin_of_all_namespaces_can_administer_everything(
        self, engine: Engine, role: Role, namespaces: tuple[str, ...], *, is_admin: bool
    ) -> None:
        assert not engine.access_cache.has_admin
        key = await make(engine, role, namespaces=namespaces)
        assert engine.access_cache.has_admin is is_admin
        await engine.submit(c.RevokeKey(key_id=key.id))
        assert not engine.access_cache.has_admin


class TestUse:
    async def last_used(self, engine: Engine, key: ApiKey) -> int | None:
        return (await access_read.get_key(engine.store, key_id=key.id)).last_used_at_ms

    async def test_the_last_use_of_keys_is_written_by_rounds(
        self, world: World, engine: Engine
    ) -> None:
        key, other = await make(engine), await make(engine)
        engine.access_cache.used(key.id)
        await world.advance(5)
        engine.access_cache.used(key.id)
        engine.access_cache.used(UNKNOWN_KEY)
        assert await self.last_used(engine, key) is None
        assert (await KeyUse().run_once(engine)).count == 1
        assert await self.last_used(engine, key) == world.clock.now_ms()
        assert await self.last_used(engine, other) is None
        assert (await KeyUse().run_once(engine)).count == 0

    async def test_what_could_not_be_written_is_written_later(
        self, world: World, engine: Engine
    ) -> None:
        key = await make(engine)
        engine.access_cache.used(key.id)
        world.faults.raise_at("touch_api_keys", Lost("cut"))
        with pytest.raises(Lost):
            await KeyUse().run_once(engine)
        await KeyUse().run_once(engine)
        assert await self.last_used(engine, key) == world.clock.now_ms()

    async def test_a_server_that_stops_writes_it(self, world: World, engine: Engine) -> None:
        late = await world.start()
        key = await make(late)
        late.access_cache.used(key.id)
        await world.stop(late)
        assert await self.last_used(engine, key) == world.clock.now_ms()

    async def test_a_server_that_stops_without_its_store_stops_all_the_same(
        self, world: World
    ) -> None:
        engine = await world.start()
        key = await make(engine)
        engine.access_cache.used(key.id)
        world.faults.raise_at("touch_api_keys", Lost("cut"))
        await world.stop(engine)
