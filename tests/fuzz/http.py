"""Requests that schemathesis makes from the OpenAPI document, sent to a server that really runs.

``python -m tests.fuzz.http --address 127.0.0.1:7300 --cases 500 --seed 7``. Half of the requests
keep to the document and half break it; ids and names of things that exist are put into many of
both, because a made-up id is only ever not found. The same seed makes the same requests, but for
the ids that the server chose. With ``--keys`` most requests carry a key.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import hypothesis
import msgspec
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.bounds import WAIT_S
from tests.fuzz.found import Found
from tests.fuzz.sharpening import Pool, sharpen

Case: TypeAlias = "schemathesis.Case[Any]"
CHECKS: Final = (
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
# In one go of one operation: few, so that all have their turn, but the first is always dull.
EXAMPLES_MIN: Final = 4
EXAMPLES_MAX: Final = 10
# Whoever waits for a change has to be left alone by the one who asked.
LEAVE_S: Final = 0.3
WAITING: Final = frozenset({"getTask", "watchTask", "listenToEvents"})
# Its first key would close an open server.
CLOSING: Final = "createApiKey"
STREAM: Final = "text/event-stream"
_SERVER_ERROR: Final = 500
_OFFERED: Final = {"admin": 0.85, "viewer": 0.95}


class Keys(msgspec.Struct, frozen=True):
    """Who asks; without an admin the server is open."""

    admin: str = ""
    viewer: str = ""

    def choose(self, rng: random.Random) -> str:
        """Return the key of the next request: the admin's, the viewer's, or none."""
        lot = rng.random()
        if lot < _OFFERED["admin"]:
            return self.admin
        return self.viewer if lot < _OFFERED["viewer"] else ""


class HttpFuzzer:
    """Sends the requests, one after the other, and looks at the answers."""

    def __init__(self, address: str, keys: Keys, pool: Pool, seed: int) -> None:
        self.found = Found(seed)
        self._base = f"http://{address}"
        self._keys = keys
        self._pool = pool
        self._rng = random.Random(seed)
        self._examples = EXAMPLES_MIN
        self._session = requests.Session()
        self._session.trust_env = False

    def run(self, cases: int) -> Found:
        """Send that many requests; every operation has its turn before one has a second."""
        headers = {"authorization": f"Bearer {self._keys.admin}"} if self._keys.admin else {}
        text = self._session.get(f"{self._base}/openapi.json", headers=headers, timeout=WAIT_S)
        schema = schemathesis.openapi.from_dict(text.json())
        found: Any = list(schema.get_all_operations())
        operations = [each.ok() for each in found]
        if not self._keys.admin:
            operations = [each for each in operations if _name(each) != CLOSING]
        turns = [(each, mode) for each in operations for mode in _modes(each)]
        self._examples = min(max(cases // len(turns), EXAMPLES_MIN), EXAMPLES_MAX)
        for number in range(cases):
            self._rng.shuffle(turns)
            for operation, mode in turns:
                if self.found.count >= cases:
                    return self.found
                self._examine(operation, mode, number, cases)
        return self.found

    def _examine(self, operation: Any, mode: GenerationMode, number: int, cases: int) -> None:
        """Send a few requests of one operation."""

        @hypothesis.seed(f"{self.found.seed}:{number}:{operation.label}:{mode}")
        @hypothesis.settings(
            max_examples=self._examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(operation.as_strategy(generation_mode=mode))
        def send(case: Case) -> None:
            if self.found.count < cases:
                self._send(case)

        send()

    def _send(self, case: Case) -> None:
        """Send one request and judge its answer."""
        sharpen(case, self._pool, self._rng)
        made = case.as_transport_kwargs(base_url=self._base)
        headers = made["headers"] or {}
        headers.pop("Authorization", None)
        if key := self._keys.choose(self._rng):
            headers["Authorization"] = f"Bearer {key}"
        made["headers"] = headers
        is_waiting = _name(case.operation) in WAITING
        limit_s = LEAVE_S if is_waiting else WAIT_S
        try:
            answer = self._session.request(**made, stream=True, timeout=(WAIT_S, limit_s))
            with answer:
                self._judge(case, answer)
        except requests.exceptions.InvalidHeader:
            return
        except requests.exceptions.RequestException as error:
            if not (is_waiting and "timed out" in str(error)):
                self.found.complain(f"{_shown(case)}: {error!r}")
            self.found.note("left")

    def _judge(self, case: Case, answer: requests.Response) -> None:
        self.found.note(str(answer.status_code))
        if answer.status_code >= _SERVER_ERROR:
            self.found.complain(f"{_shown(case)}: {answer.status_code} {answer.text}")
        if answer.headers.get("content-type", "").startswith(STREAM):
            self._look_into(case, answer)
            return
        try:
            case.validate_response(answer, checks=list(CHECKS))
        except FailureGroup as failures:
            told = "; ".join(str(each) for each in failures.exceptions)
            self.found.complain(f"{_shown(case)}: {answer.status_code} {told}\n{answer.text}")
        else:
            self._pool.learn(answer.status_code, answer.content)

    def _look_into(self, case: Case, answer: requests.Response) -> None:
        """Read what a stream says first, then leave it."""
        first = next(answer.iter_content(None), b"")
        if not first:
            self.found.complain(f"{_shown(case)}: the stream said nothing")


def _name(operation: Any) -> str:
    return str(operation.definition.raw.get("operationId", ""))


def _modes(operation: Any) -> Iterator[GenerationMode]:
    """Give the ways to make requests; nothing can be wrong where nothing is taken."""
    yield GenerationMode.POSITIVE
    is_bare = not any((operation.path_parameters, operation.query, operation.body))
    if not is_bare:
        yield GenerationMode.NEGATIVE


def _shown(case: Case) -> str:
    return f"{case.operation.label} {case.path_parameters} {case.query!r:.500} {case.body!r:.500}"


def _prepare(address: str, pool: Pool, key: str) -> None:
    """Make a few things whose names can be put into requests."""
    base = f"http://{address}/v1"
    with requests.Session() as session:
        session.trust_env = False
        if key:
            session.headers["authorization"] = f"Bearer {key}"
        session.post(f"{base}/namespaces", json={"name": pool.side}, timeout=WAIT_S)
        for number in range(8):
            body: Any = {"type": "work", "queue": f"q{number % 3}", "startToCloseMs": 60_000}
            answer = session.post(f"{base}/tasks", json=body, timeout=WAIT_S)
            answer.raise_for_status()
            pool.task_ids.append(answer.json()["taskId"])


def main() -> int:
    """Send the requests and write down what was found; 1 if something was."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.http")
    parser.add_argument("--address", required=True, metavar="HOST:PORT")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--keys", type=json.loads, default={}, help='{"admin": …, "viewer": …}')
    parser.add_argument("--worker", action="append", default=[], help="the id of a worker")
    parser.add_argument("--found", type=Path, help="a file for what was found")
    options = parser.parse_args()
    pool = Pool(worker_ids=options.worker)
    keys = msgspec.convert(options.keys, Keys)
    _prepare(options.address, pool, keys.admin)
    found = HttpFuzzer(options.address, keys, pool, options.seed).run(options.cases)
    if options.found is not None:
        options.found.write_bytes(msgspec.json.encode(found))
    print(f"seed {found.seed}: {found.count:,} requests: {found.told()}")  # noqa: T201
    for each in found.complaints:
        print(each, file=sys.stderr)  # noqa: T201
    return int(bool(found.complaints))


if __name__ == "__main__":
    sys.exit(main())
