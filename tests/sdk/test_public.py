"""What ``tenure`` offers, and what it loads to offer it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tenure

# What only a server, a command line or a test kit needs.
_FOREIGN = """
import sys
{code}
foreign = {{"apsw", "asyncpg", "click", "rich", "starlette", "structlog", "uvicorn"}}
foreign |= {{f"tenure.{{name}}" for name in ("api", "cli", "demo", "engine", "store", "testing")}}
print(*sorted(foreign & set(sys.modules)))
"""


def test_every_public_name_can_be_had() -> None:
    for name in tenure.__all__:
        assert getattr(tenure, name) is not None
        assert name in dir(tenure)
    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        _ = tenure.Clint  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "code",
    [
        "import tenure",
        "import tenure; tenure.Client, tenure.SyncClient, tenure.Worker, tenure.activity",
        "from tenure import *",
    ],
)
def test_neither_the_package_nor_its_sdk_loads_a_server(code: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _FOREIGN.format(code=code)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ended.stdout.strip() == ""
