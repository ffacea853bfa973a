"""Keys, namespaces and the audit log: commands and lists, on both stores."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tenure.core.access import api_key
from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.audit import AuditFilter
from tenure.core.limits import AUDIT_KEPT_MS, DURATION_MS_MAX, KEY_NAMESPACES_MAX, LIVE_KEYS_MAX
from tenure.core.queue import Namespace
from tenure.engine.access import first_key
from tenure.engine.access.command import (
    CreatedKey,
    CreateKey,
    CreateNamespace,
    RevokeKey,
    SetNamespace,
    SetQueue,
)
from tenure.engine.command import AnyCommand
from tenure.engine.engine import Engine
from tenure.engine.read import access as access_read
from tenure.engine.read import query
from tenure.engine.services.retention import Retention
from tenure.engine.worker import bulk_drain
from tenure.engine.worker.command import DrainWorker, EvictWorker
from tenure.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
    TenureError,
    Unauthenticated,
    Unavailable,
    WrongState,
)
from tenure.store.failure import Conflict, Lost
from tenure.store.table import access as access_table
from tenure.store.transaction import Store
from tests.engine.world import (
    CURSOR_KEY,
    DEFAULT_NAMESPACE,
    NAMESPACE,
    OTHER_NAMESPACE,
    QUEUE,
    Faults,
    World,
)
from tests.polling import eventually

UNKNOWN_KEY = "a" * 16
HOUR_MS = 3_600_000


def page(size: int = 100, token: str = "") -> query.PageRequest:
    return query.PageRequest(cursor_key=CURSOR_KEY, size=size, token=token)


async def make(engine: Engine, role: Role = Role.ADMIN, **fields: Any) -> CreatedKey:
    command = CreateKey(**{"name": "ci", "role": role, **fields})
    return await engine.submit(command)


async def set_namespace(engine: Engine, name: str = NAMESPACE, *, is_disabled: bool) -> Namespace:
    command = SetNamespace(name=name, is_disabled=is_disabled)
    return await engine.submit(command)


async def audited(engine: Engine, **where: str) -> list[tuple[str, str, str, str]]:
    """Return (action, actor, namespace, target) of the audit log, oldest first."""
    found = await access_read.list_audit(engine.store, page=page(), where=AuditFilter(**where))
    return [(x.action, x.actor, x.namespace, x.target) for x in reversed(found.items)]


async def refused(engine: Engine, command: AnyCommand) -> TenureError:
    """Run a command that is refused and leaves no trace; return the refusal."""
    before = await _access(engine)
    with pytest.raises(TenureError) as caught:
        await engine.submit(command)
    assert await _access(engine) == before
    return caught.value


async def _access(engine: Engine) -> Any:
    version, _ = await engine.store.read(access_table.read_version)
    keys = await access_read.list_keys(engine.store, page=page())
    return version, keys, await access_read.list_audit(engine.store, page=page())


class TestKeys:
    async def test_a_key_is_answered_once_with_its_secret_and_stored_without(
        self, world: World, engine: Engine
    ) -> None:
        made = await make(engine, Role.CLIENT, namespaces=(NAMESPACE,), expires_in_ms=HOUR_MS)
        now_ms = world.clock.now_ms()
        assert made.key == ApiKey(
            id=made.text.key_id,
            name="ci",
            role=Role.CLIENT,
            namespaces=(NAMESPACE,),
            secret_digest=made.text.digest(),
            created_at_ms=now_ms,
            expires_at_ms=now_ms + HOUR_MS,
        )
        assert await access_read.get_key(engine.store, key_id=made.key.id) == made.key
        parsed = api_key.parse(made.text.reveal())
        assert parsed is not None
        assert api_key.matches(engine.access_cache.find(made.key.id), parsed)
        assert made.text.secret not in repr(await world.dump()) + repr(made)

    async def test_namespaces_of_a_key_are_kept_sorted_and_once(self, engine: Engine) -> None:
        names = (OTHER_NAMESPACE, NAMESPACE, OTHER_NAMESPACE)
        made = await make(engine, Role.CLIENT, namespaces=names)
        assert made.key.namespaces == (NAMESPACE, OTHER_NAMESPACE)

    async def test_a_key_for_a_namespace_that_does_not_exist_is_refused(
        self, engine: Engine
    ) -> None:
        command = CreateKey(name="ci", role=Role.CLIENT, namespaces=("no/such",))
        error = await refused(engine, command)
        assert isinstance(error, NotFound)
        assert error.message == "Namespace no/such was not found."

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"name": ""}, "name"),
            ({"name": "a b"}, "name"),
            ({"name": "x" * 256}, "name"),
            ({"namespaces": ("bare",)}, "namespaces"),
            ({"namespaces": ("a/b/c",)}, "namespaces"),
            ({"namespaces": (NAMESPACE,) * (KEY_NAMESPACES_MAX + 1)}, "namespaces"),
            ({"expires_in_ms": -1}, "expiresInMs"),
            ({"expires_in_ms": DURATION_MS_MAX + 1}, "expiresInMs"),
        ],
    )
    async def test_a_malformed_key_is_refused(
        self, engine: Engine, fields: dict[str, Any], field: str
    ) -> None:
        command = CreateKey(**{"name": "ci", "role": Role.CLIENT, **fields})
        error = await refused(engine, command)
        assert isinstance(error, InvalidArgument)
        assert error.fields == {"field": field}

    async def test_there_are_not_more_live_keys_than_servers_remember(
        self, world: World, engine: Engine
    ) -> None:
        made = await make(engine)
        await _fill_keys(world, made.key)
        error = await refused(engine, CreateKey(name="ci", role=Role.CLIENT))
        assert isinstance(error, WrongState)
        assert error.fields == {"state": "full"}
        await engine.submit(RevokeKey(key_id=made.key.id))
        await make(engine)

    async def test_a_revoked_key_is_not_found_from_the_answer_on(self, engine: Engine) -> None:
        made = await make(engine)
        assert engine.access_cache.find(made.key.id) == made.key
        revoked = await engine.submit(RevokeKey(key_id=made.key.id))
        assert revoked.revoked_at_ms is not None
        assert engine.access_cache.find(made.key.id) is None
        assert engine.access_cache.has_keys

    async def test_revoking_twice_gives_the_same_answer_and_one_record(
        self, world: World, engine: Engine
    ) -> None:
        made = await make(engine)
        first = await engine.submit(RevokeKey(key_id=made.key.id))
        await world.advance(1_000)
        assert await engine.submit(RevokeKey(key_id=made.key.id)) == first
        assert len(await audited(engine, action="key.revoke")) == 1

    async def test_an_unknown_key_cannot_be_revoked(self, engine: Engine) -> None:
        error = await refused(engine, RevokeKey(key_id=UNKNOWN_KEY))
        assert isinstance(error, NotFound)
        assert error.message == f"API key {UNKNOWN_KEY} was not found."

    async def test_a_whole_key_given_for_its_id_is_refused_and_not_repeated(
        self, engine: Engine
    ) -> None:
        made = await make(engine)
        error = await refused(engine, RevokeKey(key_id=made.text.reveal()))
        assert error.fields == {"field": "keyId"}
        assert made.text.secret not in error.message

    async def test_a_lost_answer_costs_a_second_key_and_nothing_else(
        self, world: World, engine: Engine
    ) -> None:
        world.faults.raise_at("after COMMIT", Lost("cut"))
        with pytest.raises(Unavailable):
            await make(engine)
        made = await make(engine)
        listed = await access_read.list_keys(engine.store, page=page())
        assert len(listed.items) == 2
        assert len(await audited(engine)) == 2
        assert engine.access_cache.find(made.key.id) is not None

    async def test_a_revocation_whose_answer_was_lost_is_in_force_once_it_is_answered(
        self, world: World, engine: Engine
    ) -> None:
        made = await make(engine)
        world.faults.raise_at("after COMMIT", Lost("cut"))
        with pytest.raises(Unavailable):
            await engine.submit(RevokeKey(key_id=made.key.id))
        await engine.submit(RevokeKey(key_id=made.key.id))
        assert engine.access_cache.find(made.key.id) is None


async def _fill_keys(world: World, key: ApiKey) -> None:
    """Copy a key until there are as many as there may be."""
    digits = "printf('%016d', n)" if world.dialect == "sqlite" else "lpad(n::text, 16, '0')"
    zeros = "zeroblob(32)" if world.dialect == "sqlite" else "decode(repeat('00', 32), 'hex')"
    await world.database.execute(
        f"""
        INSERT INTO api_keys (
            id, name, role, namespaces, secret_digest, created_at_ms, created_by
        )
        WITH RECURSIVE numbers (n) AS (
            SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {LIVE_KEYS_MAX - 1}
        )
        SELECT {digits}, 'ci', 'client', '[]', {zeros}, {key.created_at_ms}, '' FROM numbers
        """
    )


class TestScope:
    async def test_a_scoped_admin_makes_keys_for_its_own_namespaces(self, engine: Engine) -> None:
        admin = await make(engine, namespaces=(NAMESPACE, OTHER_NAMESPACE))
        made = await make(engine, Role.WORKER, namespaces=(NAMESPACE,), actor=admin.key.id)
        assert made.key.created_by == admin.key.id

    @pytest.mark.parametrize("name", [DEFAULT_NAMESPACE, "no/such"])
    async def test_a_namespace_of_others_is_as_if_it_did_not_exist(
        self, engine: Engine, name: str
    ) -> None:
        admin = await make(engine, namespaces=(NAMESPACE,))
        command = CreateKey(
            name="x", role=Role.VIEWER, namespaces=(NAMESPACE, name), actor=admin.key.id
        )
        error = await refused(engine, command)
        assert isinstance(error, NotFound)
        assert error.message == f"Namespace {name} was not found."

    async def test_a_scoped_admin_makes_no_key_for_all_namespaces(self, engine: Engine) -> None:
        admin = await make(engine, namespaces=(NAMESPACE,))
        command = CreateKey(name="x", role=Role.VIEWER, actor=admin.key.id)
        assert isinstance(await refused(engine, command), PermissionDenied)

    async def test_a_scoped_admin_revokes_the_keys_within_its_own(self, engine: Engine) -> None:
        admin = await make(engine, namespaces=(NAMESPACE,))
        own = await make(engine, Role.CLIENT, namespaces=(NAMESPACE,))
        wide = await make(engine, Role.CLIENT, namespaces=(NAMESPACE, OTHER_NAMESPACE))
        whole = await make(engine, Role.CLIENT)
        await engine.submit(RevokeKey(key_id=own.key.id, actor=admin.key.id))
        for each in (wide, whole):
            error = await refused(engine, RevokeKey(key_id=each.key.id, actor=admin.key.id))
            assert isinstance(error, NotFound)
            assert error.message == f"API key {each.key.id} was not found."

    @pytest.mark.parametrize(
        "command",
        [
            CreateNamespace(name="new/default"),
            SetNamespace(name=NAMESPACE, is_disabled=True),
            SetNamespace(name="no/such", is_disabled=True),
        ],
    )
    async def test_a_scoped_admin_leaves_namespaces_alone(
        self, engine: Engine, command: Any
    ) -> None:
        admin = await make(engine, namespaces=(NAMESPACE,))
        fields = {name: getattr(command, name) for name in command.__struct_fields__}
        error = await refused(engine, type(command)(**{**fields, "actor": admin.key.id}))
        assert isinstance(error, PermissionDenied)

    @pytest.mark.parametrize("role", [Role.CLIENT, Role.WORKER, Role.VIEWER])
    async def test_no_other_role_administers(self, engine: Engine, role: Role) -> None:
        caller = await make(engine, role)
        command = CreateKey(name="x", role=Role.ADMIN, actor=caller.key.id)
        assert isinstance(await refused(engine, command), PermissionDenied)

    async def test_a_key_that_ended_meanwhile_administers_nothing(
        self, world: World, engine: Engine
    ) -> None:
        revoked, ending = await make(engine), await make(engine, expires_in_ms=1_000)
        await engine.submit(RevokeKey(key_id=revoked.key.id))
        await world.advance(1_000)
        for actor in (revoked.key.id, ending.key.id, UNKNOWN_KEY):
            command = CreateKey(name="x", role=Role.ADMIN, actor=actor)
            assert isinstance(await refused(engine, command), Unauthenticated)

    async def test_a_key_that_was_revoked_earlier_in_the_batch_administers_nothing(
        self, engine: Engine
    ) -> None:
        admin = await make(engine)
        revoking = engine.submit(RevokeKey(key_id=admin.key.id))
        creating = engine.submit(CreateKey(name="x", role=Role.ADMIN, actor=admin.key.id))
        await revoking
        with pytest.raises(Unauthenticated):
            await creating
        listed = await access_read.list_keys(engine.store, page=page())
        assert len(listed.items) == 1

    async def test_a_key_may_revoke_itself(self, engine: Engine) -> None:
        admin = await make(engine)
        await engine.submit(RevokeKey(key_id=admin.key.id, actor=admin.key.id))
        assert engine.access_cache.find(admin.key.id) is None


class TestLists:
    async def test_keys_are_listed_page_by_page_with_the_revoked_ones(
        self, world: World, engine: Engine
    ) -> None:
        made = []
        for _ in range(5):
            made.append((await make(engine)).key.id)
            await world.advance(1)
        await engine.submit(RevokeKey(key_id=made[0]))
        found: list[str] = []
        token = ""
        while True:
            part = await access_read.list_keys(engine.store, page=page(2, token))
            found += [each.id for each in part.items]
            token = part.next_page_token
            if not token:
                break
        assert found == made[::-1]

    async def test_keys_of_the_same_instant_are_listed_once_each(self, engine: Engine) -> None:
        made = {(await make(engine)).key.id for _ in range(5)}
        first = await access_read.list_keys(engine.store, page=page(3))
        rest = await access_read.list_keys(engine.store, page=page(3, first.next_page_token))
        listed = [each.id for each in (*first.items, *rest.items)]
        assert len(listed) == 5
        assert set(listed) == made

    async def test_a_scoped_caller_sees_its_own_keys(self, engine: Engine) -> None:
        own = await make(engine, Role.CLIENT, namespaces=(NAMESPACE,))
        whole = await make(engine)
        scope = (NAMESPACE, OTHER_NAMESPACE)
        listed = await access_read.list_keys(engine.store, page=page(), namespaces=scope)
        assert [each.id for each in listed.items] == [own.key.id]
        found = await access_read.get_key(engine.store, key_id=own.key.id, namespaces=scope)
        assert found == own.key
        for key_id in (whole.key.id, UNKNOWN_KEY):
            with pytest.raises(NotFound, match=f"API key {key_id} was not found"):
                await access_read.get_key(engine.store, key_id=key_id, namespaces=scope)

    async def test_a_cursor_of_one_caller_is_none_of_another(self, engine: Engine) -> None:
        for _ in range(2):
            await make(engine, Role.CLIENT, namespaces=(NAMESPACE,))
        first = await access_read.list_keys(engine.store, page=page(1))
        with pytest.raises(InvalidArgument):
            await access_read.list_keys(
                engine.store, page=page(1, first.next_page_token), namespaces=(NAMESPACE,)
            )

    async def test_namespaces_are_listed_with_their_state(self, engine: Engine) -> None:
        await set_namespace(engine, is_disabled=True)
        listed = await access_read.list_namespaces(engine.store, page=page())
        assert {each.name: each.is_disabled for each in listed.items} == {
            NAMESPACE: True,
            OTHER_NAMESPACE: False,
            DEFAULT_NAMESPACE: False,
        }
        found = await access_read.get_namespace(engine.store, name="acme")
        assert (found.name, found.is_disabled) == (NAMESPACE, True)

    async def test_a_scoped_caller_sees_its_own_namespaces(self, engine: Engine) -> None:
        scope = (OTHER_NAMESPACE, NAMESPACE, "no/such")
        first = await access_read.list_namespaces(engine.store, page=page(1), namespaces=scope)
        assert [each.name for each in first.items] == [NAMESPACE]
        rest = await access_read.list_namespaces(
            engine.store, page=page(1, first.next_page_token), namespaces=scope
        )
        assert [each.name for each in rest.items] == [OTHER_NAMESPACE]
        assert rest.next_page_token == ""
        for name in (DEFAULT_NAMESPACE, "no/such"):
            with pytest.raises(NotFound, match=f"Namespace {name} was not found"):
                await access_read.get_namespace(engine.store, name=name, namespaces=scope)

    async def test_a_scoped_caller_sees_its_own_audit_records(self, engine: Engine) -> None:
        own = await make(engine, Role.CLIENT, namespaces=(NAMESPACE,))
        await make(engine, Role.CLIENT, namespaces=(NAMESPACE, OTHER_NAMESPACE))
        await make(engine)
        listed = await access_read.list_audit(engine.store, page=page(), namespaces=(NAMESPACE,))
        assert [each.target for each in listed.items] == [own.key.id]
        for name in (OTHER_NAMESPACE, "no/such"):
            with pytest.raises(NotFound, match=f"Namespace {name} was not found"):
                await access_read.list_audit(
                    engine.store,
                    page=page(),
                    where=AuditFilter(namespace=name),
                    namespaces=(NAMESPACE,),
                )

    async def test_audit_records_are_listed_page_by_page(self, engine: Engine) -> None:
        made = [(await make(engine)).key.id for _ in range(3)]
        first = await access_read.list_audit(engine.store, page=page(2))
        rest = await access_read.list_audit(engine.store, page=page(2, first.next_page_token))
        assert [each.target for each in (*first.items, *rest.items)] == made[::-1]
        with pytest.raises(InvalidArgument):
            await access_read.list_audit(
                engine.store,
                page=page(2, first.next_page_token),
                where=AuditFilter(action="key.revoke"),
            )


class TestAudit:
    async def test_each_administrative_change_leaves_one_record(
        self, world: World, engine: Engine
    ) -> None:
        first = await make(engine)
        actor = first.key.id
        other = await make(engine, Role.CLIENT, namespaces=(NAMESPACE,), actor=actor)
        await engine.submit(RevokeKey(key_id=other.key.id, actor=actor))
        await engine.submit(CreateNamespace(name="new/default", actor=actor))
        for is_disabled in (True, True, False):
            command = SetNamespace(name="new/default", is_disabled=is_disabled, actor=actor)
            await engine.submit(command)
        drained, evicted = await world.worker(engine), await world.worker(engine)
        for _ in range(2):
            drain = DrainWorker(namespace=NAMESPACE, worker_id=drained, actor=actor)
            await engine.submit(drain)
            evict = EvictWorker(namespace=NAMESPACE, worker_id=evicted, actor=actor)
            await engine.submit(evict)
            brakes = SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=True, actor=actor)
            await engine.submit(brakes)
        assert await audited(engine) == [
            ("key.create", "", "", actor),
            ("key.create", actor, NAMESPACE, other.key.id),
            ("key.revoke", actor, NAMESPACE, other.key.id),
            ("namespace.create", actor, "new/default", "new/default"),
            ("namespace.disable", actor, "new/default", "new/default"),
            ("namespace.enable", actor, "new/default", "new/default"),
            ("worker.drain", actor, NAMESPACE, drained),
            ("worker.evict", actor, NAMESPACE, evicted),
            ("queue.set", actor, NAMESPACE, QUEUE),
        ]
        assert await audited(engine, actor=actor, action="queue.set") == [
            ("queue.set", actor, NAMESPACE, QUEUE)
        ]

    async def test_details_say_what_was_done_and_no_secret(self, engine: Engine) -> None:
        names = (NAMESPACE, OTHER_NAMESPACE)
        made = [
            await make(engine),
            await make(engine, Role.WORKER, namespaces=(NAMESPACE,)),
            await make(engine, Role.VIEWER, namespaces=names),
        ]
        for fields in ({"is_paused": True, "concurrency_max": 3}, {"is_paused": False}):
            await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, **fields))
        await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, concurrency_max=0))
        listed = await access_read.list_audit(engine.store, page=page())
        assert [each.detail for each in reversed(listed.items)] == [
            "admin key ci for all namespaces",
            f"worker key ci for {NAMESPACE}",
            "viewer key ci for 2 namespaces",
            "paused, at most 3",
            "open, at most 3",
            "open",
        ]
        assert listed.items[3].namespaces == names
        assert not any(each.text.secret in repr(listed) for each in made)

    async def test_what_a_worker_wishes_for_itself_leaves_none(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        command = DrainWorker(namespace=NAMESPACE, worker_id=worker, is_own=True)
        await engine.submit(command)
        assert await audited(engine) == []

    async def test_the_drain_of_a_fleet_leaves_one_for_each_worker(
        self, world: World, engine: Engine
    ) -> None:
        admin = await make(engine)
        workers = {await world.worker(engine, labels={"zone": "a"}) for _ in range(3)}
        drained = await bulk_drain.drain_matching(
            engine, namespace=NAMESPACE, labels={"zone": "a"}, actor=admin.key.id
        )
        assert set(drained) == workers
        found = await audited(engine, action="worker.drain")
        assert {each[3] for each in found} == workers
        assert {each[1] for each in found} == {admin.key.id}

    async def test_a_batch_that_runs_twice_leaves_one(self, world: World, engine: Engine) -> None:
        world.faults.raise_at("before COMMIT", Conflict("again"))
        made = await make(engine)
        assert await audited(engine) == [("key.create", "", "", made.key.id)]

    async def test_a_record_is_written_with_its_change_or_not_at_all(
        self, world: World, engine: Engine
    ) -> None:
        before = await world.dump("api_keys", "audit")
        world.faults.raise_at("insert_audit", Lost("cut"))
        with pytest.raises(Unavailable):
            await make(engine)
        assert await world.dump("api_keys", "audit") == before
        assert not engine.access_cache.has_keys

    async def test_records_are_kept_for_ninety_days(self, world: World, engine: Engine) -> None:
        made = await make(engine)
        await world.advance(AUDIT_KEPT_MS)
        await world.round(Retention(), engine)
        assert len(await audited(engine)) == 1
        await world.advance(1)
        report = await world.round(Retention(), engine)
        assert report.count == 1
        assert await audited(engine) == []
        assert await access_read.get_key(engine.store, key_id=made.key.id) == made.key


class TestBootstrap:
    async def test_the_first_key_is_made_without_a_server(self, world: World) -> None:
        command = CreateKey(name="root", role=Role.ADMIN)
        store = world.database.store(Faults())
        made = await first_key.create_key(store, command, clock=world.clock)
        engine = await world.start()
        assert engine.access_cache.has_admin
        assert engine.access_cache.find(made.key.id) == made.key
        assert await audited(engine) == [("key.create", "", "", made.key.id)]

    async def test_a_server_that_runs_hears_of_it(self, world: World) -> None:
        engine = await world.start(news_poll_ms=20)
        assert not engine.access_cache.has_keys
        command = CreateKey(name="root", role=Role.ADMIN)
        store = world.database.store(Faults())
        made = await first_key.create_key(store, command, clock=world.clock)
        await eventually(lambda: engine.access_cache.find(made.key.id))

    async def test_a_refusal_changes_nothing(self, world: World) -> None:
        command = CreateKey(name="root", role=Role.ADMIN, namespaces=("no/such",))
        with pytest.raises(NotFound):
            await first_key.create_key(world.database.store(Faults()), command, clock=world.clock)
        malformed = CreateKey(name="", role=Role.ADMIN)
        with pytest.raises(InvalidArgument):
            await first_key.create_key(world.database.store(Faults()), malformed, clock=world.clock)
        engine = await world.start()
        assert not engine.access_cache.has_keys
        assert await audited(engine) == []

    async def test_a_key_is_not_lost_because_nobody_could_be_told(self, world: World) -> None:
        class Mute:
            def __init__(self, store: Store) -> None:
                self._store = store

            async def notify(self, *payloads: str) -> None:
                del payloads
                raise Lost("cut")

            def __getattr__(self, name: str) -> Any:
                return getattr(self._store, name)

        store = cast("Store", Mute(world.database.store(Faults())))
        command = CreateKey(name="root", role=Role.ADMIN)
        made = await first_key.create_key(store, command, clock=world.clock)
        engine = await world.start()
        assert engine.access_cache.find(made.key.id) == made.key

    async def test_a_conflict_is_tried_again(self, world: World) -> None:
        faults = Faults()
        faults.raise_at("lock_access", Conflict("again"))
        command = CreateKey(name="root", role=Role.ADMIN)
        await first_key.create_key(world.database.store(faults), command, clock=world.clock)
        faults.raise_at("lock_access", *(Conflict("again") for _ in range(10)))
        with pytest.raises(Lost):
            await first_key.create_key(world.database.store(faults), command, clock=world.clock)
