"""A pooler before PostgreSQL that the server was not told of: the error says what to set."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import COMMAND_S


def _refusal() -> bytes:
    """Return what pgbouncer answers to a setting of the session in the first message."""
    fields = b"SERROR\0C08P01\0Munsupported startup parameter: jit\0\0"
    return b"E" + struct.pack("!I", len(fields) + 4) + fields


@pytest.fixture
def pooler(tmp_path: Path) -> Iterator[Path]:
    """Refuse everybody the way a pooler in transaction mode does."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / ".s.PGSQL.5432"))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4_096)
                    connection.sendall(_refusal())

        threading.Thread(target=serve, daemon=True).start()
        yield tmp_path
        listener.shutdown(socket.SHUT_RDWR)


def test_a_server_behind_a_pooler_says_that_it_has_to_be_told(pooler: Path) -> None:
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tenure.cli", "server"),
            *("--store", f"postgresql://tenure@/tenure?host={pooler}"),
            *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        env={**os.environ, "TENURE_POOLED": ""},
    )
    assert ended.returncode == 5
    assert "unsupported startup parameter: jit" in ended.stderr
    assert "start the server with --pooled (TENURE_POOLED=1)" in ended.stderr
    assert "Next: Start the server with --pooled" in ended.stderr
    assert "Traceback" not in ended.stderr
