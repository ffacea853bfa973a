"""What a type checker knows of ``Worker``; `make check` reads it, nothing runs it."""

from __future__ import annotations

from tenure import Worker


def made(activities: list[object]) -> None:
    Worker(activities=activities)
    Worker("host:7301", activities=activities, queue="mail", lease=15, tls=True, mode="poll")
    Worker(["a:1", "b:1"], activities=activities, labels={"zone": "a"}, drain_deadline="1m")
    Worker("host:7301", workflows=activities, warm_runs=10, guard="warn")
    Worker("host:7301", workflows=activities, guard="maybe")  # type: ignore[arg-type]
    Worker("host:7301", activities=activities, colour="red")  # type: ignore[call-arg]
    Worker("host:7301", activities=activities, mode="push")  # type: ignore[arg-type]
    Worker("host:7301", activities=activities, max_concurrent="8")  # type: ignore[arg-type]
