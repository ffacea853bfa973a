"""Three times what a server can do: it refuses early, and what it takes is done as before.

First as much as the server does when 32 requests are always on their way, then three times as much
for as long. Single tasks over HTTP, and 100 at a time over gRPC, as the SDK combines them when
a server is busy: over streams, which is what the SDK does, and as calls. A fleet of workers beats
beside them. Client and server share the machine, so that ratios say more than times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tests.bounds import LONG_WORK_S
from tests.polling import eventually
from tests.soak.offer import ACCEPTED, REFUSED, Offered
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores
from tests.wire import checker
from tests.wire.journal import Tail
from tests.wire.process import Process
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

TIMES: Final = 3
# As many as are always let in.
PLACES: Final = 32
EDGES: Final = (("http", 1), ("stream", 100), ("grpc", 100))
# What is refused is told within this; what is accepted is done within that, or within twice what it
# takes at capacity: the wait that a server aims at is a tenth of a second.
REFUSED_MS: Final = 100.0
MEDIAN_MS: Final = 200.0
P99_MS: Final = 1_000.0
RATIO: Final = 2.0


class Size(msgspec.Struct, frozen=True):
    """How many workers beat, for how long there is load, and how many requests wait at most.

    ``slack`` is for bounds of time: in ``make test`` other tests load the machine as well, and a
    second is too short for a server to find out what it can do.
    """

    workers: int
    seconds: float
    places: int
    slack: float
    scale: Scale


SIZES: Final = {
    False: Size(200, 20.0, 1_000, 1.0, SCALES[False]),
    True: Size(20, 1.0, 300, 8.0, SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Load each edge on each store, on a server of its own."""
    size = SIZES[small]
    results: list[Result] = []
    for edge, batch in EDGES[:1] if small else EDGES:

        async def scene(
            stage: Stage, dialect: str, edge: str = edge, batch: int = batch
        ) -> list[Result]:
            return await _Scene(stage, size, edge, batch).play(dialect)

        results += await on_both_stores(size.scale, scene)
    return results


class _Scene:
    """One edge of one server."""

    def __init__(self, stage: Stage, size: Size, edge: str, batch: int) -> None:
        self._stage = stage
        self._size = size
        self._edge = edge
        self._batch = batch

    async def play(self, dialect: str) -> list[Result]:
        server = await self._stage.server()
        client = await self._stage.client(server.grpc)
        tail = await self._start_fleet(server)
        usual = await self._offer(server, rate=0, places=PLACES)
        per_s = usual.of(ACCEPTED) / usual.seconds
        loaded = await self._offer(server, rate=TIMES * per_s, places=self._size.places)
        online = len(await client.workers("ONLINE"))
        name = f"overload, {dialect}, {self._edge}, {self._batch} tasks each"
        return [*self._judge_answers(name, usual, loaded), self._judge_fleet(name, tail, online)]

    async def _start_fleet(self, server: ServerProcess) -> Tail:
        journal = self._stage.folder / "fleet.jsonl"
        process = await Process.spawn(
            (
                *("-m", "tests.wire.many_workers", "--target", server.grpc, "--slots", "1"),
                *("--workers", str(self._size.workers), "--journal", str(journal)),
            ),
            self._stage.folder / "fleet.log",
        )
        self._stage.adopt(process)
        tail = Tail(journal)
        await eventually(
            lambda: len(tail.of("welcomed")) >= self._size.workers,
            "all sessions",
            within_s=LONG_WORK_S,
        )
        return tail

    async def _offer(self, server: ServerProcess, *, rate: float, places: int) -> Offered:
        found = self._stage.folder / "found.json"
        address = server.http if self._edge == "http" else server.grpc
        process = await Process.spawn(
            (
                *("-m", "tests.soak.offer", "--edge", self._edge, "--address", address),
                *("--rate", str(rate), "--seconds", str(self._size.seconds)),
                *("--places", str(places), "--batch", str(self._batch), "--found", str(found)),
            ),
            self._stage.folder / "offer.log",
        )
        code = await process.wait(self._size.seconds + LONG_WORK_S)
        assert code == 0, (self._stage.folder / "offer.log").read_text()
        return msgspec.json.decode(found.read_bytes(), type=Offered)

    def _judge_answers(self, name: str, usual: Offered, loaded: Offered) -> list[Result]:
        slack = self._size.slack
        usual_s = usual.of(ACCEPTED) / usual.seconds
        offered_s = (loaded.count + loaded.skipped) / loaded.seconds
        other = {
            answer: count
            for each in (usual, loaded)
            for answer, count in each.answers.items()
            if answer not in {ACCEPTED, REFUSED}
        }
        refused_ms = _quantile(loaded.refused_ms, 0.5)
        # Nothing has to be refused by a server that turns out to do all of it.
        is_refusing = loaded.of(REFUSED) > 0 or loaded.of(ACCEPTED) > 2 * usual_s * loaded.seconds
        median_ms, p99_ms = (_quantile(loaded.accepted_ms, part) for part in (0.5, 0.99))
        usual_median_ms, usual_p99_ms = (_quantile(usual.accepted_ms, part) for part in (0.5, 0.99))
        median_max_ms = max(MEDIAN_MS * slack, RATIO * usual_median_ms)
        p99_max_ms = max(P99_MS * slack, RATIO * usual_p99_ms)
        is_early = is_refusing and refused_ms <= REFUSED_MS * slack
        is_quick = median_ms <= median_max_ms and p99_ms <= p99_max_ms
        return [
            Result(
                f"{name}: refused",
                f"with 429, half of them within {REFUSED_MS * slack:.0f} ms; no other failure",
                f"{loaded.of(REFUSED) / loaded.count:.0%} of {loaded.count / loaded.seconds:.0f}/s "
                f"({offered_s:.0f}/s tried), median {refused_ms:.0f} ms, others {other or 'none'}",
                held=not other and is_early,
            ),
            Result(
                f"{name}: accepted",
                f"median within {median_max_ms:.0f} ms, p99 within {p99_max_ms:.0f} ms",
                f"median {median_ms:.0f} ms, p99 {p99_ms:.0f} ms; at capacity "
                f"{usual_median_ms:.0f} and {usual_p99_ms:.0f} ms",
                held=is_quick,
            ),
            Result(
                f"{name}: done",
                "reported",
                f"{loaded.of(ACCEPTED) / loaded.seconds:.0f}/s of {usual_s:.0f}/s at capacity; "
                f"the client used {loaded.cpu:.0%} of a core",
            ),
        ]

    def _judge_fleet(self, name: str, tail: Tail, online: int) -> Result:
        beats = sorted(float(line.text) for line in tail.of("beat"))
        judged = checker.check_calm(tail.of("over", "odd"))
        broken = len(tail.of("disconnected"))
        return Result(
            f"{name}: heartbeats of {self._size.workers} workers",
            "none lost, nobody judged",
            f"{len(judged)} judged, {online} online, {broken} connections lost; "
            f"p99 {_quantile(beats, 0.99):.0f} ms of {len(beats):,}",
            held=not judged and not broken and online == self._size.workers,
            details=tuple(judged),
        )


def _quantile(values: Sequence[float], part: float) -> float:
    """Return a value that ``part`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0
