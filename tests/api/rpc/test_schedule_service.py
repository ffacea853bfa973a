"""Schedules over gRPC: each call with a good request, repeated, of strangers, and bad."""

from __future__ import annotations

from typing import Any, Final

import pytest
from google.protobuf.message import Message

from tenure.engine.engine import Engine
from tenure.engine.schedule.command import FireSchedules
from tenure.v1 import schedule_service_pb2 as pb
from tenure.v1 import task_pb2
from tenure.v1.schedule_service_pb2_grpc import ScheduleServiceStub
from tests.api.rpc.wire import OPTIONS, Wire, refused
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, QUEUE, World

MINUTE_MS: Final = 60_000
ID: Final = "nightly"
NAMED: Final = {"schedule_id": ID}


def target(**changes: Any) -> pb.ScheduleTarget:
    fields = {"type": "report", "task_queue": QUEUE, "options": OPTIONS, "input": b"[1]"}
    return pb.ScheduleTarget(**{**fields, **changes})


def spec(**changes: Any) -> pb.ScheduleSpec:
    fields = {"when": pb.ScheduleRule(every_ms=MINUTE_MS), "target": target()}
    return pb.ScheduleSpec(**{**fields, **changes})


def spec_of(**when: Any) -> pb.ScheduleSpec:
    return spec(when=pb.ScheduleRule(**when))


async def call(wire: Wire, method: str, namespace_id: str = NAMESPACE, **fields: Any) -> Any:
    stub: Any = ScheduleServiceStub(wire.channel)
    request: Message = getattr(pb, f"{method}Request")(namespace_id=namespace_id, **fields)
    return await getattr(stub, method)(request)


async def put(wire: Wire, schedule_id: str = ID, **changes: Any) -> pb.Schedule:
    answer = await call(wire, "PutSchedule", schedule_id=schedule_id, spec=spec(**changes))
    found: pb.Schedule = answer.schedule
    return found


async def pass_minutes(world: World, engine: Engine, minutes: int) -> None:
    await world.advance(minutes * MINUTE_MS)
    await engine.submit(FireSchedules(amount=100, fires_max=1_000))


async def test_what_a_schedule_says_comes_back(wire: Wire, world: World) -> None:
    said = pb.ScheduleSpec(
        when=pb.ScheduleRule(
            rule="0 0 2 * * MON-FRI",
            zone="Europe/Berlin",
            starts_at_ms=1_000,
            ends_at_ms=4_000_000_000_000,
        ),
        target=target(
            labels={"team": "a"},
            priority=0,
            options=task_pb2.TaskOptions(
                start_to_close_ms=1_000,
                heartbeat_timeout_ms=500,
                retry=task_pb2.RetryPolicy(maximum_attempts=3),
                encoding="json",
                resources={"gpu": "1"},
            ),
        ),
        overlap="BUFFER_ONE",
        max_catchup=0,
        catchup_window_ms=5_000,
        jitter_ms=7,
        pause_after_failures=2,
        note="for people",
    )
    answer = await call(wire, "CreateSchedule", **NAMED, spec=said)
    assert answer.is_new
    shown = answer.schedule
    options = shown.spec.target.options
    assert (options.kind, options.start_to_close_ms) == (task_pb2.TASK_KIND_ACTIVITY, 1_000)
    assert (options.retry.maximum_attempts, dict(options.resources)) == (3, {"gpu": "1"})
    shown.spec.target.options.CopyFrom(said.target.options)
    assert shown.spec == said
    assert (shown.state, shown.failure_count, shown.error) == ("ACTIVE", 0, "")
    assert shown.created_at_ms == shown.changed_at_ms == world.clock.now_ms()
    assert shown.next_fire_at_ms > world.clock.now_ms()
    got = (await call(wire, "GetSchedule", **NAMED)).schedule
    assert got.next_fire_at_ms == shown.next_fire_at_ms
    assert got.spec.target.input == b"[1]"
    (listed,) = (await call(wire, "ListSchedules")).schedules
    assert (listed.schedule_id, listed.spec.target.input) == (ID, b"")


async def test_what_is_left_out_has_its_default(wire: Wire) -> None:
    shown = await put(wire)
    said = shown.spec
    assert (said.overlap, said.max_catchup, said.when.zone) == ("ALLOW", 100, "UTC")
    assert not said.HasField("catchup_window_ms")
    assert said.target.priority == 5
    run = target(options=task_pb2.TaskOptions(kind=task_pb2.TASK_KIND_WORKFLOW))
    shown = await put(wire, target=run)
    assert shown.spec.target.options.retry.maximum_attempts == 1
    assert shown.spec.target.on_live == "RETURN"


async def test_the_same_content_again_changes_nothing(wire: Wire, world: World) -> None:
    await call(wire, "CreateSchedule", **NAMED, spec=spec())
    before = await world.dump()
    again = await call(wire, "CreateSchedule", **NAMED, spec=spec())
    put_again = await call(wire, "PutSchedule", **NAMED, spec=spec())
    assert (again.is_new, put_again.is_new, put_again.is_changed) == (False, False, False)
    status, detail = await refused(call(wire, "CreateSchedule", **NAMED, spec=spec(overlap="SKIP")))
    assert (status, detail.code) == ("ALREADY_EXISTS", "already_exists")
    assert await world.dump() == before


async def test_a_new_rule_counts_from_now_on(wire: Wire, world: World, engine: Engine) -> None:
    await put(wire)
    await world.advance(10 * MINUTE_MS)
    changed = await put(wire, when=pb.ScheduleRule(every_ms=2 * MINUTE_MS))
    assert changed.fired_until_ms >= world.clock.now_ms() - MINUTE_MS
    await engine.submit(FireSchedules(amount=100, fires_max=1_000))
    fired = (await call(wire, "ListFires", **NAMED)).fires
    assert not [each for each in fired if each.kind == "TICK" and not each.task_id]
    assert changed.next_fire_at_ms > world.clock.now_ms()


async def test_a_list_is_paged_filtered_and_counted(wire: Wire) -> None:
    for name in ("b", "a", "c"):
        await put(wire, name, target=target(type=f"kind-{name}"))
    await call(wire, "PauseSchedule", schedule_id="c")
    first = await call(wire, "ListSchedules", page_size=2, wants_total=True)
    assert [each.schedule_id for each in first.schedules] == ["a", "b"]
    assert (first.total_count, first.is_total_exact) == (3, True)
    rest = await call(wire, "ListSchedules", page_token=first.next_page_token)
    assert [each.schedule_id for each in rest.schedules] == ["c"]
    assert not rest.HasField("total_count")
    for fields, names in (({"is_paused": True}, ["c"]), ({"type": "kind-b"}, ["b"])):
        found = await call(wire, "ListSchedules", **fields)
        assert [each.schedule_id for each in found.schedules] == names


async def test_fires_are_listed_with_what_was_skipped(
    wire: Wire, world: World, engine: Engine
) -> None:
    await put(wire, max_catchup=1)
    await pass_minutes(world, engine, 4)
    newest, skipped = (await call(wire, "ListFires", **NAMED)).fires
    assert (newest.kind, newest.reason, newest.outcome) == ("TICK", "", "")
    assert newest.key == "schedule:nightly:2026-01-01T00:04:00.000Z"
    assert newest.lateness_ms == newest.recorded_at_ms - newest.fire_at_ms
    assert (skipped.kind, skipped.reason, skipped.task_id) == ("SKIPPED", "catchup_limit", "")
    assert (skipped.count, skipped.is_count_exact) == (3, True)
    assert skipped.until_ms - skipped.fire_at_ms == 2 * MINUTE_MS
    task = await wire.get(newest.task_id)
    assert (task.type, task.idempotency_key, task.input) == ("report", newest.key, b"[1]")


async def test_the_end_of_a_task_is_the_outcome_of_its_fire(
    wire: Wire, world: World, engine: Engine
) -> None:
    await put(wire, target=target(type="mail"))
    await pass_minutes(world, engine, 1)
    worker = await world.worker(engine)
    (task,) = await world.claim(engine, worker)
    await world.finish(engine, worker, task)
    await engine.submit(FireSchedules(amount=100, fires_max=1_000))
    await pass_minutes(world, engine, 1)
    fires = (await call(wire, "ListFires", **NAMED)).fires
    assert [each.task_id for each in fires][-1] == task.id


async def test_a_schedule_is_paused_and_resumed(wire: Wire, world: World, engine: Engine) -> None:
    await put(wire)
    paused = (await call(wire, "PauseSchedule", **NAMED, note="a move")).schedule
    assert (paused.state, paused.pause_note) == ("PAUSED", "a move")
    assert paused.paused_at_ms == world.clock.now_ms()
    assert paused.next_fire_at_ms == 0
    noted = (await call(wire, "PauseSchedule", **NAMED, note="a longer move")).schedule
    assert noted.pause_note == "a longer move"
    await pass_minutes(world, engine, 3)
    resumed = (await call(wire, "ResumeSchedule", **NAMED, mode="SKIP")).schedule
    assert (resumed.state, resumed.pause_note) == ("ACTIVE", "")
    assert (await call(wire, "ResumeSchedule", **NAMED)).schedule.state == "ACTIVE"
    await pass_minutes(world, engine, 0)
    (skipped,) = (await call(wire, "ListFires", **NAMED)).fires
    assert (skipped.reason, skipped.count) == ("paused", 3)


async def test_a_trigger_fires_once_for_each_trigger_id(wire: Wire, world: World) -> None:
    await put(wire)
    first = await call(wire, "TriggerSchedule", **NAMED, trigger_id="one")
    before = await world.dump()
    again = await call(wire, "TriggerSchedule", **NAMED, trigger_id="one")
    assert (first.is_new, again.is_new) == (True, False)
    assert again.fire == first.fire
    assert await world.dump() == before
    assert first.fire.kind == "TRIGGER"
    made = await call(wire, "TriggerSchedule", **NAMED)
    assert made.fire.task_id != first.fire.task_id


async def test_a_backfill_tells_what_had_fired(wire: Wire, world: World) -> None:
    await put(wire)
    to_ms = world.clock.now_ms()
    period: dict[str, Any] = {**NAMED, "from_ms": to_ms - 5 * MINUTE_MS, "to_ms": to_ms}
    first = await call(wire, "BackfillSchedule", **period)
    assert len(first.started) == 5
    assert {each.kind for each in first.started} == {"BACKFILL"}
    before = await world.dump()
    again = await call(wire, "BackfillSchedule", **period)
    assert (len(again.started), list(again.known_keys)) == (0, [each.key for each in first.started])
    assert await world.dump() == before


async def test_a_deleted_schedule_is_not_found(wire: Wire) -> None:
    await put(wire)
    deleted = (await call(wire, "DeleteSchedule", **NAMED)).schedule
    assert deleted.schedule_id == ID
    for method in ("GetSchedule", "DeleteSchedule", "PauseSchedule", "TriggerSchedule"):
        status, detail = await refused(call(wire, method, **NAMED))
        assert (status, detail.code) == ("NOT_FOUND", "not_found"), method


async def test_the_next_fires_of_a_schedule_and_of_a_rule(wire: Wire, world: World) -> None:
    await put(wire, when=pb.ScheduleRule(rule="0 2 * * *", zone="Asia/Kolkata"))
    shown = await call(wire, "ListNextFires", **NAMED, count=1)
    (fire,) = shown.fires
    assert fire.local_time.endswith("T02:00:00.000+05:30")
    assert fire.fire_at_ms % MINUTE_MS == 0
    assert len((await call(wire, "ListNextFires", **NAMED)).fires) == 10
    when = pb.ScheduleRule(rule="0 2 * * *", zone="Asia/Kolkata")
    preview = await call(wire, "PreviewRule", when=when, count=1)
    assert list(preview.fires) == [fire]
    after_ms = world.clock.now_ms() + 86_400_000
    later = await call(wire, "PreviewRule", when=when, count=1, after_ms=after_ms)
    assert later.fires[0].fire_at_ms == fire.fire_at_ms + 86_400_000
    ends = pb.ScheduleRule(every_ms=3_600_000, ends_at_ms=world.clock.now_ms() + 7_200_000)
    assert len((await call(wire, "PreviewRule", when=ends)).fires) == 2


GOOD: Final[dict[str, dict[str, Any]]] = {
    "CreateSchedule": {"schedule_id": "other", "spec": spec()},
    "PutSchedule": {"schedule_id": "other", "spec": spec()},
    "GetSchedule": NAMED,
    "ListSchedules": {},
    "PauseSchedule": NAMED,
    "ResumeSchedule": NAMED,
    "TriggerSchedule": NAMED,
    "BackfillSchedule": {**NAMED, "from_ms": 1, "to_ms": MINUTE_MS},
    "DeleteSchedule": NAMED,
    "ListNextFires": NAMED,
    "PreviewRule": {"when": pb.ScheduleRule(every_ms=MINUTE_MS)},
    "ListFires": NAMED,
}
# Of these only the namespace itself is asked for.
ANYWHERE: Final = {"CreateSchedule", "PutSchedule", "ListSchedules", "PreviewRule"}
BAD_SPECS: Final[list[tuple[pb.ScheduleSpec, str]]] = [
    (spec_of(), "when.rule"),
    (spec_of(rule="0 2 * * *", every_ms=MINUTE_MS), "when.rule"),
    (spec_of(rule="0 2 * * 8"), "when.rule"),
    (spec_of(rule="0 2 * * *", zone="Nowhere"), "when.zone"),
    (spec_of(every_ms=999), "when.every_ms"),
    (spec_of(every_ms=-1), "when.every_ms"),
    (spec_of(every_ms=2**62), "when.every_ms"),
    (spec_of(every_ms=MINUTE_MS, offset_ms=MINUTE_MS), "when.offset_ms"),
    (spec_of(every_ms=MINUTE_MS, starts_at_ms=-1), "when.starts_at_ms"),
    (spec_of(every_ms=MINUTE_MS, ends_at_ms=2**62), "when.ends_at_ms"),
    (spec(overlap="LATER"), "overlap"),
    (spec(max_catchup=-1), "max_catchup"),
    (spec(max_catchup=10**9), "max_catchup"),
    (spec(catchup_window_ms=0), "catchup_window_ms"),
    (spec(jitter_ms=-1), "jitter_ms"),
    (spec(pause_after_failures=-1), "pause_after_failures"),
    (spec(note="x" * 10_000), "note"),
    (spec(target=pb.ScheduleTarget()), "type"),
    (spec(target=target(type="a b")), "type"),
    (spec(target=target(task_queue="")), "task_queue"),
    (spec(target=target(priority=10)), "priority"),
    (spec(target=target(options=task_pb2.TaskOptions())), "start_to_close_ms"),
    (spec(target=target(external_id="x")), "external_id"),
    (spec(target=target(on_live="MAYBE")), "on_live"),
    (spec(target=target(labels={"__proto__": "x"})), "labels"),
]


def test_every_call_has_a_good_request() -> None:
    names = {each.name for each in pb.DESCRIPTOR.services_by_name["ScheduleService"].methods}
    assert GOOD.keys() == names


@pytest.mark.parametrize("method", GOOD)
async def test_nothing_of_ours_is_there_in_another_namespace(
    wire: Wire, world: World, method: str
) -> None:
    await put(wire)
    before = await world.dump()
    asked = call(wire, method, OTHER_NAMESPACE, **GOOD[method])
    if method in ANYWHERE:
        assert ID not in str(await asked)
        return
    _, detail = await refused(asked)
    assert detail.code == "not_found"
    assert await world.dump() == before


@pytest.mark.parametrize(("said", "field"), BAD_SPECS)
@pytest.mark.parametrize("method", ["CreateSchedule", "PutSchedule"])
async def test_bad_content_is_refused_by_its_field(
    wire: Wire, world: World, method: str, said: pb.ScheduleSpec, field: str
) -> None:
    before = await world.dump()
    status, detail = await refused(call(wire, method, **NAMED, spec=said))
    assert (status, detail.code) == ("INVALID_ARGUMENT", "invalid_argument")
    assert detail.field.rpartition(".")[2] == field.rpartition(".")[2]
    assert await world.dump() == before


@pytest.mark.parametrize(
    ("method", "changes", "field"),
    [
        ("CreateSchedule", {"schedule_id": "a b"}, "schedule_id"),
        ("PutSchedule", {"schedule_id": ""}, "schedule_id"),
        ("PauseSchedule", {"note": "x" * 10_000}, "note"),
        ("ResumeSchedule", {"mode": "LATER"}, "mode"),
        ("TriggerSchedule", {"trigger_id": "x" * 10_000}, "trigger_id"),
        ("BackfillSchedule", {"from_ms": -1}, "from_ms"),
        ("BackfillSchedule", {"from_ms": 2 * MINUTE_MS}, "to_ms"),
        ("BackfillSchedule", {"to_ms": 2**62}, "to_ms"),
        ("BackfillSchedule", {"to_ms": 1_001 * MINUTE_MS}, "to_ms"),
        ("ListNextFires", {"count": 101}, "count"),
        ("ListNextFires", {"count": -1}, "count"),
        ("PreviewRule", {"count": -1}, "count"),
        ("PreviewRule", {"when": pb.ScheduleRule()}, "rule"),
        ("PreviewRule", {"when": pb.ScheduleRule(rule="H * * * *")}, "rule"),
        ("ListSchedules", {"type": "a b"}, "type"),
        ("ListSchedules", {"page_token": "x"}, "page_token"),
        ("ListSchedules", {"page_size": -1}, "page_size"),
        ("ListFires", {"page_token": "x"}, "page_token"),
    ],
)
async def test_a_bad_request_is_refused_by_its_field_and_changes_nothing(
    wire: Wire, world: World, method: str, changes: dict[str, Any], field: str
) -> None:
    await put(wire)
    before = await world.dump()
    asked = call(wire, method, **{**GOOD[method], **changes})
    status, detail = await refused(asked)
    assert (status, detail.code, detail.field) == ("INVALID_ARGUMENT", "invalid_argument", field)
    assert await world.dump() == before
