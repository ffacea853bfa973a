"""Metrics: what the engine and the edges count, what the sampler reads, what a scrape shows."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import tenure
from tenure.api.metrics import exposition
from tenure.api.metrics.metric import Metrics, metrics_response
from tenure.api.metrics.queue_label import QueueLabels
from tenure.api.metrics.sampler import Sampler
from tenure.core.limits import METRIC_METHODS_MAX
from tenure.core.task.record import TaskState
from tenure.core.worker.record import WorkerMode
from tenure.engine.engine import Engine
from tenure.engine.read.sample import Sample
from tenure.engine.task.command import CancelTask, FinishKind
from tenure.engine.worker.command import DrainWorker, EvictWorker
from tenure.errors import NotFound, Unavailable
from tenure.store.failure import Lost
from tests.engine.conftest import dialect, world
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World
from tests.polling import eventually

__all__ = ["dialect", "world"]

Values = dict[str, float]


class Timer:
    """A clock that stands until the test moves it."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def metrics(timer: Timer) -> Metrics:
    return Metrics(timer=timer)


@pytest.fixture
async def engine(world: World, metrics: Metrics) -> Engine:
    made = await world.start()
    made.meter = metrics
    return made


async def scrape(metrics: Metrics, accept: str = "") -> httpx.Response:
    async def endpoint(request: Request) -> Response:
        return metrics_response(metrics, request)

    app = Starlette(routes=[Route("/metrics", endpoint)])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://tenure") as client:
        return await client.get("/metrics", headers={"accept": accept} if accept else {})


async def values(metrics: Metrics) -> Values:
    """Return every sample as ``name{label=value,…}``."""
    found: Values = {}
    for family in parse_plain((await scrape(metrics)).text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_what_the_engine_did_is_counted(
    world: World, engine: Engine, metrics: Metrics
) -> None:
    worker = await world.worker(engine)
    await world.add(engine, 3)
    await world.advance(40)
    task, other, _ = await world.claim(engine, worker)
    await world.advance(3_000)
    await world.finish(engine, worker, task)
    await world.finish(engine, worker, other, FinishKind.RELEASED)
    with pytest.raises(NotFound):
        await engine.submit(CancelTask(namespace=NAMESPACE, task_id=world.clock.new_id()))
    world.faults.raise_at("before COMMIT", Lost("cut"))
    with pytest.raises(Unavailable):
        await world.add(engine)
    found = await values(metrics)
    assert found["tenure_tasks_enqueued_total"] == 3
    assert found["tenure_tasks_handed_out_total"] == 3
    assert found["tenure_tasks_finished_total{state=succeeded}"] == 1
    assert found["tenure_attempts_ended_total{outcome=released}"] == 1
    assert found["tenure_rejections_total{code=not_found}"] == 1
    assert found["tenure_store_losses_total{reason=store_unreachable}"] == 1
    assert found["tenure_task_start_latency_seconds_bucket{le=0.025}"] == 0
    assert found["tenure_task_start_latency_seconds_bucket{le=0.05}"] == 3
    assert found["tenure_task_start_latency_seconds_count"] == 3
    assert found["tenure_task_start_latency_seconds_sum"] == pytest.approx(0.12)
    assert found["tenure_attempt_duration_seconds_bucket{le=2.5}"] == 0
    assert found["tenure_attempt_duration_seconds_bucket{le=+Inf}"] == 2
    assert found["tenure_batch_size_commands_count{lane=work}"] >= 5
    assert found["tenure_batch_duration_seconds_count{lane=work}"] >= 5
    assert found[f"tenure_build_info{{version={tenure.__version__}}}"] == 1
    assert found["process_cpu_seconds_total"] > 0


async def test_requests_are_counted_by_method_and_code(metrics: Metrics) -> None:
    for code, seconds in (("ok", 0.002), ("ok", 0.2), ("not_found", 0.002)):
        metrics.request("grpc", "GetTask", code, seconds)
    metrics.request("http", "GET /v1/tasks/{id}", "ok", 70.0)
    found = await values(metrics)
    grpc = "edge=grpc,method=GetTask"
    assert found["tenure_requests_total{code=ok,edge=grpc,method=GetTask}"] == 2
    assert found["tenure_requests_total{code=not_found,edge=grpc,method=GetTask}"] == 1
    assert found[f"tenure_request_duration_seconds_count{{{grpc}}}"] == 3
    assert found["tenure_request_duration_seconds_bucket{edge=grpc,le=0.0025,method=GetTask}"] == 2
    http = "edge=http,method=GET /v1/tasks/{id}"
    assert found[f"tenure_request_duration_seconds_sum{{{http}}}"] == 70


async def test_methods_beyond_the_limit_are_summed_up(metrics: Metrics) -> None:
    for number in range(METRIC_METHODS_MAX + 50):
        metrics.request("http", f"GET /made/up/{number}", "not_found", 0.001)
    metrics.request("http", "GET /made/up/0", "not_found", 0.001)
    found = await values(metrics)
    counted = [name for name in found if name.startswith("tenure_requests_total")]
    assert len(counted) == METRIC_METHODS_MAX + 1
    assert found["tenure_requests_total{code=not_found,edge=http,method=other}"] == 50
    assert found["tenure_requests_total{code=not_found,edge=http,method=GET /made/up/0}"] == 2


async def test_a_sample_shows_queues_workers_and_who_waits(
    world: World, engine: Engine, metrics: Metrics
) -> None:
    worker = await world.worker(engine)
    await world.worker(engine, namespace=OTHER_NAMESPACE)
    drained = await world.worker(engine, mode=WorkerMode.SESSION)
    await world.session(engine, drained)
    gone = await world.worker(engine)
    await world.add(engine, 3)
    await world.advance(2_500)
    await world.add(engine, 2, type="sms", queue="slow")
    await world.settle(engine)
    await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=drained))
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=gone))
    poll = world.poll(engine, worker, types=frozenset({"mail"}), max_tasks=1)
    await world.settle(engine)
    engine.deaf = frozenset({worker})
    sampler = Sampler(engine, metrics)
    assert await sampler.run_once()
    found = await values(metrics)
    queue = f"namespace={NAMESPACE},queue="
    assert found[f"tenure_queue_tasks{{{queue}default,state=dispatched}}"] == 3
    assert found[f"tenure_queue_tasks{{{queue}default,state=pending}}"] == 0
    assert found[f"tenure_queue_tasks{{{queue}slow,state=pending}}"] == 2
    assert found[f"tenure_queue_tasks{{{queue}slow,state=running}}"] == 0
    assert found[f"tenure_queue_oldest_waiting_seconds{{{queue}slow}}"] == 0
    assert found["tenure_workers{health=deaf,status=online}"] == 1
    assert found["tenure_workers{health=healthy,status=draining}"] == 1
    assert found["tenure_workers{health=,status=offline}"] == 1
    assert found["tenure_leases"] == 3
    assert found["tenure_polls_waiting"] == 1
    assert found["tenure_sessions_open"] == 1
    assert found["tenure_lane_waiting_commands{lane=work}"] == 0
    poll.cancel()
    await world.advance(1_500)
    await sampler.run_once()
    found = await values(metrics)
    assert found[f"tenure_queue_oldest_waiting_seconds{{{queue}slow}}"] == 1.5


async def test_an_emptied_queue_is_shown_with_zeros(
    world: World, engine: Engine, metrics: Metrics
) -> None:
    (task_id,) = await world.add(engine)
    sampler = Sampler(engine, metrics)
    await sampler.run_once()
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task_id))
    await sampler.run_once()
    found = await values(metrics)
    queue = f"namespace={NAMESPACE},queue=default"
    assert found[f"tenure_queue_tasks{{{queue},state=pending}}"] == 0
    assert found[f"tenure_queue_oldest_waiting_seconds{{{queue}}}"] == 0


async def test_while_the_store_is_away_the_last_sample_stays_and_its_age_grows(
    world: World, engine: Engine, metrics: Metrics, timer: Timer
) -> None:
    sampler = Sampler(engine, metrics)
    timer.seconds += 3
    assert (await values(metrics))["tenure_sample_age_seconds"] == 3
    await world.add(engine, 2)
    assert await sampler.run_once()
    for error in (Lost("cut"), AssertionError("a mistake of ours")):
        world.faults.raise_at("count_depths", error)
        timer.seconds += 10
        assert not await sampler.run_once()
    found = await values(metrics)
    assert found["tenure_sample_age_seconds"] == 20
    assert found[f"tenure_queue_tasks{{namespace={NAMESPACE},queue=default,state=pending}}"] == 2
    assert await sampler.run_once()
    assert (await values(metrics))["tenure_sample_age_seconds"] == 0


async def test_a_scrape_asks_the_store_for_nothing(
    world: World, engine: Engine, metrics: Metrics
) -> None:
    await Sampler(engine, metrics).run_once()
    world.faults.points.clear()
    await scrape(metrics)
    assert world.faults.points == []


async def test_the_sampler_runs_by_itself_until_it_is_cancelled(
    world: World, engine: Engine, metrics: Metrics
) -> None:
    serving = asyncio.get_running_loop().create_task(
        Sampler(engine, metrics, interval_ms=1).serve()
    )
    await world.add(engine)
    name = f"tenure_queue_tasks{{namespace={NAMESPACE},queue=default,state=pending}}"

    async def is_sampled() -> bool:
        return (await values(metrics)).get(name) == 1

    await eventually(is_sampled)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", parse_plain),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", parse_open),
    ],
)
async def test_a_scrape_has_the_format_that_was_asked_for(
    metrics: Metrics, accept: str, content_type: str, parse: object
) -> None:
    metrics.request("grpc", "GetTask", "ok", 0.1)
    response = await scrape(metrics, accept)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(content_type)
    names = {family.name for family in parse(response.text)}  # type: ignore[operator]  # untyped
    assert {"tenure_requests", "tenure_batch_duration_seconds"} <= names


async def test_two_servers_in_one_process_count_apart(metrics: Metrics) -> None:
    other = Metrics()
    metrics.request("grpc", "GetTask", "ok", 0.1)
    assert not any("tenure_requests_total" in name for name in await values(other))


def sample(**queues: int) -> Sample:
    depths = {(NAMESPACE, name): {TaskState.PENDING: count} for name, count in queues.items()}
    ages = {(NAMESPACE, name): count * 1_000 for name, count in queues.items()}
    return Sample(depths, ages, {})


def shown(labels: QueueLabels) -> dict[str, tuple[float, float]]:
    """Return pending tasks and seconds of waiting by queue."""
    depth, oldest, *_ = labels.families()
    found = {}
    for each in oldest.samples:
        queue = each.labels["queue"]
        (count,) = (
            one.value
            for one in depth.samples
            if (one.labels["queue"], one.labels["state"]) == (queue, "pending")
        )
        found[queue] = (count, each.value)
    return found


def test_queues_beyond_the_limit_are_summed_up_as_other() -> None:
    labels = QueueLabels(queues_max=2)
    labels.take(sample(a=1, b=2, c=3, d=4))
    assert shown(labels) == {"a": (1, 1), "b": (2, 2), "other": (7, 4)}
    labels.take(sample(b=2, c=3))
    assert shown(labels) == {"b": (2, 2), "c": (3, 3)}
    labels.take(sample(c=1))
    assert shown(labels) == {"b": (0, 0), "c": (1, 1)}


def test_the_reference_names_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text("utf-8")
    families = [each for each in vars(exposition).values() if isinstance(each, exposition.Family)]
    assert len(families) > 20
    for each in families:
        (row,) = [
            line for line in page.splitlines() if re.match(rf"\| `{each.name}(_total)?`", line)
        ]
        assert ", ".join(each.labels) in row
