"""Listening to the hints of a server over HTTP, and coming back when the stream breaks."""

from __future__ import annotations

import json
import ssl
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urlencode

from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError, refused

if TYPE_CHECKING:
    from tenure.cli.client.invocation import Invocation

HTTP_PORT: Final = 7300
_CALL_SECONDS_MAX: Final = 10.0
# Longer than two signs of life of the server.
_SILENCE_SECONDS_MAX: Final = 40.0
_AGAIN_SECONDS: Final = 1.0
_STOP_SECONDS_MAX: Final = 5.0
# Of more changes than anybody reads only the fact is kept.
_HINTS_MAX: Final = 10_000
_OK: Final = 200


class ReceivedHint(NamedTuple):
    """One thing that changed."""

    kind: str
    id: str
    version: int
    state: str


class StreamNews(NamedTuple):
    """What came since the last look: of each thing the last word; all of it is new on a reset."""

    hints: Sequence[ReceivedHint]
    is_reset: bool


class HttpEdge:
    """The HTTP side of the server that a command talks to."""

    def __init__(self, call: Invocation, address: str) -> None:
        """Take the addresses that were given, or the usual port where gRPC is."""
        self._addresses = deque(address.split(",") if address else map(_usual, call.targets))
        self._headers = {"tenure-namespace": call.namespace}
        if call.api_key:
            self._headers["authorization"] = f"Bearer {call.api_key.strip()}"
        self._tls = None if call.tls is None else _context(*call.tls.paths)

    @property
    def address(self) -> str:
        """Return where the next connection goes."""
        return self._addresses[0]

    def connect(self) -> HTTPConnection:
        """Return a connection that is open, to the first address where somebody answers."""
        for _ in range(len(self._addresses) - 1):
            try:
                return self._connect()
            except CliError:
                self._addresses.rotate(-1)
        return self._connect()

    def _connect(self) -> HTTPConnection:
        host, _, port = self.address.rpartition(":")
        host = host.strip("[]")
        made = (
            HTTPConnection(host, int(port), timeout=_CALL_SECONDS_MAX)
            if self._tls is None
            else HTTPSConnection(host, int(port), timeout=_CALL_SECONDS_MAX, context=self._tls)
        )
        try:
            made.connect()
        except OSError as error:
            made.close()
            raise self._unreachable(error) from error
        return made

    def ask(self, connection: HTTPConnection, path: str, last_id: str = "") -> HTTPResponse:
        """Send a request and return the answer, unless it is a refusal."""
        headers = {**self._headers, **({"last-event-id": last_id} if last_id else {})}
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            if answer.status == _OK:
                return answer
            raise _refusal(answer.status, answer.read())
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error

    def get(self, path: str) -> str:
        """Return the text of a path."""
        connection = self.connect()
        try:
            return self.ask(connection, path).read().decode()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def ended(self) -> CliError:
        """Return what it means that a stream has ended."""
        return CliError(
            f"The server at http {self.address} has ended the stream.",
            exit_code=ExitCode.UNREACHABLE,
            code="unavailable",
        )

    def _unreachable(self, error: Exception) -> CliError:
        return CliError(
            f"There is no Tenure server at http {self.address}.",
            why=f"{getattr(error, 'strerror', None) or str(error) or type(error).__name__}.",
            hint="Name the HTTP address of the server with --http or TENURE_HTTP.",
            exit_code=ExitCode.UNREACHABLE,
            code="unreachable",
        )


def _usual(target: str) -> str:
    host = target.rpartition(":")[0].rpartition("/")[2]
    return f"{host or '127.0.0.1'}:{HTTP_PORT}"


def _context(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=ca or None)
    if certificate:
        made.load_cert_chain(certificate, key)
    return made


def _refusal(status: int, body: bytes) -> CliError:
    try:
        fields: dict[str, Any] = dict(json.loads(body))
        code, message = str(fields.pop("error")), str(fields.pop("message"))
    except (ValueError, TypeError, KeyError):
        return CliError(
            f"The HTTP address answered with {status}.", hint="Is it a Tenure server? Check --http."
        )
    return refused(code, message, fields)


class EventStream:
    """A thread that listens; inside a ``with`` block."""

    def __init__(self, edge: HttpEdge, **query: str) -> None:
        """Prepare to listen to what the query asks for."""
        self._edge = edge
        self._path = f"/v1/events?{urlencode(query)}"
        self._last_id = ""
        self._hints: dict[tuple[str, str], ReceivedHint] = {}
        self._is_reset = False
        self._is_woken = False
        self._news = threading.Condition()
        self._stopped = threading.Event()
        self._connection: HTTPConnection | None = None
        self._thread = threading.Thread(target=self._run, name="tenure-events", daemon=True)
        self.is_connected = False
        self.trouble: CliError | None = None

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more."""
        self._stopped.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                # A read that waits in the other thread ends.
                connection.sock.shutdown(2)
        self._thread.join(_STOP_SECONDS_MAX)

    @property
    def is_over(self) -> bool:
        """Tell whether it has given up: the server refuses."""
        return self.trouble is not None and not self.trouble.is_transient

    def wait_connected(self) -> None:
        """Return when it listens; raise what is in the way."""
        with self._news:
            self._news.wait_for(lambda: self.is_connected or self.trouble, _CALL_SECONDS_MAX)
            if self.trouble is not None:
                raise self.trouble

    def take(self, seconds: float) -> StreamNews:
        """Return what is new, after at most so many seconds."""
        with self._news:
            self._news.wait_for(
                lambda: self._hints or self._is_reset or self._is_woken, max(seconds, 0.0)
            )
            found = StreamNews(list(self._hints.values()), self._is_reset)
            self._hints, self._is_reset, self._is_woken = {}, False, False
            return found

    def wake(self) -> None:
        """Let a wait for news end now, without any."""
        with self._news:
            self._is_woken = True
            self._news.notify_all()

    def lose(self) -> None:
        """Say with the next look that what was taken last has not been read."""
        with self._news:
            self._is_reset = True

    def _run(self) -> None:
        while not self._stopped.is_set() and not self.is_over:
            try:
                self._listen()
                raise self._edge.ended()
            except CliError as error:
                self._note(error)
            self._stopped.wait(_AGAIN_SECONDS)

    def _listen(self) -> None:
        """Listen until the stream ends or breaks."""
        connection = self._connection = self._edge.connect()
        try:
            answer = self._edge.ask(connection, self._path, self._last_id)
            if connection.sock is not None:
                connection.sock.settimeout(_SILENCE_SECONDS_MAX)
            self._note(None)
            with suppress(OSError, HTTPException):
                self._read(answer)
        finally:
            self._connection = None
            connection.close()

    def _read(self, answer: HTTPResponse) -> None:
        fields: dict[str, str] = {}
        while line := answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
                continue
            self._last_id = fields.get("id", self._last_id)
            if fields.get("event") == "error":
                # The server ends the stream: its key, for one, lives no longer.
                raise _refusal(_OK, fields["data"].encode())
            if "data" in fields:
                self._keep(fields["event"], json.loads(fields["data"]))
            fields = {}

    def _keep(self, name: str, data: dict[str, Any]) -> None:
        with self._news:
            if name == "reset" or len(self._hints) >= _HINTS_MAX:
                self._is_reset = True
            else:
                hint = ReceivedHint(data["kind"], data["id"], data["version"], data["state"])
                key = (hint.kind, hint.id)
                # The newest comes last.
                self._hints.pop(key, None)
                self._hints[key] = hint
            self._news.notify_all()

    def _note(self, error: CliError | None) -> None:
        with self._news:
            self.trouble = error
            self.is_connected = error is None
            self._news.notify_all()
