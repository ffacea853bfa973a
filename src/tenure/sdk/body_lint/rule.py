"""What does not belong into the body of a workflow, and what to write instead."""

from __future__ import annotations

from typing import Final, NamedTuple


class Rule(NamedTuple):
    """A kind of finding: its name, and what to write instead."""

    name: str
    instead: str


CLOCK: Final = Rule("clock", "use ctx.now()")
CHANCE: Final = Rule("chance", "use ctx.random() or ctx.uuid4()")
SECRET: Final = Rule("chance", "put it into a step: await ctx.step(…)")
SLEEP: Final = Rule("blocking", "await ctx.sleep(…)")
BLOCKING: Final = Rule("blocking", "put it into a step: await ctx.step(…)")
OUTSIDE: Final = Rule("outside", "put it into a step: await ctx.step(…)")
ENVIRONMENT: Final = Rule("environment", "take it as an argument, or read it in a step")
SET: Final = Rule("set-order", "sort it: sorted(…)")
AS_COMPLETED: Final = Rule("asyncio", "pass steps, or tasks of asyncio.create_task")
WAIT_FOR: Final = Rule("asyncio", "write async with asyncio.timeout(…) around the await")
GLOBAL: Final = Rule("global", "keep it in the workflow, or in a step")

_TABLE: Final[dict[Rule, tuple[str, ...]]] = {
    CLOCK: (
        *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns"),
        *("time.perf_counter", "time.perf_counter_ns", "time.process_time", "time.ctime"),
        *("time.localtime", "time.gmtime", "time.strftime"),
        *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"),
        "datetime.date.today",
    ),
    CHANCE: ("random.*", "uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "uuid.uuid8"),
    SECRET: ("secrets.*", "os.urandom", "random.SystemRandom"),
    SLEEP: ("time.sleep",),
    BLOCKING: (
        *("builtins.open", "builtins.input", "io.open", "subprocess.*", "socket.*"),
        *("requests.*", "httpx.*", "urllib.request.*", "urllib3.*", "http.client.*"),
        *("shutil.*", "tempfile.*", "os.system", "os.popen", "os.listdir", "os.scandir"),
        *("os.walk", "os.stat", "os.remove", "os.unlink", "os.rename", "os.replace", "os.mkdir"),
        *("os.makedirs", "os.rmdir", "os.open", "sqlite3.connect", "select.*"),
    ),
    OUTSIDE: (
        *("asyncio.to_thread", "asyncio.open_connection", "asyncio.start_server"),
        *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "asyncio.run"),
        *("threading.*", "multiprocessing.*", "concurrent.futures.*", "aiohttp.*"),
    ),
    ENVIRONMENT: ("os.getenv", "os.getcwd", "os.getpid", "socket.gethostname", "platform.*"),
}
_EXACT: Final = {
    name: rule for rule, names in _TABLE.items() for name in names if not name.endswith(".*")
}
_ALL_OF: Final = {
    name.removesuffix("*"): rule
    for rule, names in _TABLE.items()
    for name in names
    if name.endswith(".*")
}
# Types and constants of these modules do nothing.
_HARMLESS: Final = frozenset(
    {
        *("random.Random", "threading.local", "subprocess.list2cmdline"),
        *("concurrent.futures.CancelledError", "concurrent.futures.TimeoutError"),
    }
)
READ_ATTRIBUTES: Final = {"os.environ": ENVIRONMENT}
"""Names that are refused without a call."""

PATH_METHODS: Final = frozenset(
    {
        *("read_text", "read_bytes", "write_text", "write_bytes", "open", "exists", "is_file"),
        *("is_dir", "iterdir", "glob", "rglob", "mkdir", "unlink", "touch", "stat"),
    }
)
"""Methods of paths that use the disk."""


def of_call(name: str) -> Rule | None:
    """Return the rule that a call of a function breaks, by its full name."""
    if name in _HARMLESS:
        return None
    exact = _EXACT.get(name)
    if exact is not None:
        return exact
    return next((rule for prefix, rule in _ALL_OF.items() if name.startswith(prefix)), None)
