"""Mistakes on the command line."""

from __future__ import annotations

import signal
import uuid

from tests.messages.app import greet
from tests.messages.mistake import mistake
from tests.messages.scene import Scene

_SECTION = "On the command line"
_UNKNOWN = str(uuid.UUID(int=7))


def _error(lines: list[str]) -> str:
    """Return the part of an output that tells of an error: what, why and what next."""
    first = max(at for at, line in enumerate(lines) if line.startswith("Error:"))
    last = max(at for at, line in enumerate(lines) if line.startswith("  Next:"))
    return "\n".join(lines[first : last + 1])


@mistake(_SECTION, "The server is not running", "tenure tasks ls")
def no_server_for_command(scene: Scene) -> str:
    return scene.command("tasks", "ls", TENURE_TARGET=scene.silent_port)


@mistake(_SECTION, "The HTTP port as target", "tenure tasks ls --target 127.0.0.1:7300")
def http_port_for_command(scene: Scene) -> str:
    return scene.command("tasks", "ls", "--target", scene.server.http)


@mistake(_SECTION, "A typo in a command", "tenure taks ls")
def unknown_command(scene: Scene) -> str:
    return scene.command("taks", "ls")


@mistake(_SECTION, "A typo in a module", "tenure worker ap")
def unknown_module(scene: Scene) -> str:
    return scene.command("worker", "ap")


@mistake(_SECTION, "A typo in a module", "tenure dev ap")
def unknown_module_for_dev(scene: Scene) -> str:
    dev = scene.start("dev", "ap", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    dev.until("Next:")
    dev.send(signal.SIGINT)
    dev.exit_code()
    return _error(dev.lines)


@mistake(_SECTION, "A mistake in the module", "tenure worker broken")
def broken_module(scene: Scene) -> str:
    (scene.folder / "broken.py").write_text("import requsts\n")
    return scene.command("worker", "broken")


@mistake(_SECTION, "A module without activities", "tenure worker empty")
def empty_module(scene: Scene) -> str:
    (scene.folder / "empty.py").write_text("def greet(name): ...\n")
    return scene.command("worker", "empty")


@mistake(_SECTION, "No worker knows the type", "tenure tasks explain ID")
def unknown_type(scene: Scene) -> str:
    scene.started_worker()
    handle = scene.client.enqueue_named("gret", {"name": "Ann"}, start_to_close="30s")
    return scene.command("tasks", "explain", handle.task_id, TENURE_TARGET=scene.server.grpc)


@mistake(_SECTION, "The worker serves another queue", "tenure tasks explain ID")
def other_queue(scene: Scene) -> str:
    scene.started_worker()
    handle = scene.client.enqueue(greet.with_options(queue="mail"), "Ann")
    return scene.command("tasks", "explain", handle.task_id, TENURE_TARGET=scene.server.grpc)


@mistake(_SECTION, "Input that is not JSON", "tenure tasks enqueue greet --input name=Ann")
def no_json_input(scene: Scene) -> str:
    target = scene.server.grpc
    return scene.command("tasks", "enqueue", "greet", "--input", "name=Ann", TENURE_TARGET=target)


@mistake(_SECTION, "An unknown id", "tenure tasks show ID")
def unknown_task_shown(scene: Scene) -> str:
    return scene.command("tasks", "show", _UNKNOWN, TENURE_TARGET=scene.server.grpc)


@mistake(_SECTION, "The id of a task where a run is meant", "tenure runs show ID")
def task_as_run(scene: Scene) -> str:
    handle = scene.client.enqueue(greet.with_options(queue="nobody"), "Ann")
    return scene.command("runs", "show", handle.task_id, TENURE_TARGET=scene.server.grpc)


@mistake(
    _SECTION, "A rule with a mistake", "tenure schedules put nightly greet --rule '0 25 * * *'"
)
def bad_rule(scene: Scene) -> str:
    given = ("schedules", "put", "nightly", "greet", "--rule", "0 25 * * *")
    return scene.command(*given, TENURE_TARGET=scene.server.grpc)


@mistake(_SECTION, "A schedule without a rule", "tenure schedules put nightly greet")
def no_rule(scene: Scene) -> str:
    return scene.command("schedules", "put", "nightly", "greet", TENURE_TARGET=scene.server.grpc)


@mistake(_SECTION, "An unknown schedule", "tenure schedules pause nigthly")
def unknown_schedule(scene: Scene) -> str:
    return scene.command("schedules", "pause", "nigthly", TENURE_TARGET=scene.server.grpc)


@mistake(_SECTION, "The API key is missing", "tenure tasks ls")
def no_key_for_command(scene: Scene) -> str:
    return scene.command("tasks", "ls", TENURE_TARGET=scene.guarded.grpc)


@mistake(_SECTION, "Ctrl-C while a task is waited for", "tenure tasks wait ID")
def interrupted_wait(scene: Scene) -> str:
    handle = scene.client.enqueue(greet.with_options(queue="nobody"), "Ann")
    waiting = scene.start("tasks", "wait", handle.task_id, "--target", scene.server.grpc)
    waiting.until("no_worker")
    waiting.send(signal.SIGINT)
    waiting.exit_code()
    return _error(waiting.lines)


@mistake(_SECTION, "Ctrl-C in a worker", "tenure worker app")
def interrupted_worker(scene: Scene) -> str:
    worker = scene.start("worker", "app", "--queue", "idle", "--target", scene.server.grpc)
    worker.until("Stop:")
    count = len(worker.lines)
    worker.send(signal.SIGINT)
    worker.exit_code()
    return "\n".join(worker.lines[count:])
