"""``tenure keys``, ``tenure audit`` and the option ``--api-key`` against a server with keys."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from tests.cli.conftest import invoke, read
from tests.cli.server import CLI, ServerProcess

KEY = re.compile(r"tnr_[a-z2-7]{16}_[A-Za-z0-9_-]{43}\n")
Run = Callable[..., Result]


class Guarded:
    """A server that wants keys, and the first of them."""

    def __init__(self, process: ServerProcess, admin: str, log: Path) -> None:
        self.process = process
        self.admin = admin
        self.log = log

    def run(self, *arguments: str, key: str | None = None, **options: Any) -> Result:
        """Run a command with a key in its environment."""
        env = {
            "TENURE_TARGET": self.process.grpc,
            "TENURE_API_KEY": self.admin if key is None else key,
        }
        return invoke(*arguments, env=env, **options)

    def made(self, *options: str) -> str:
        """Make a key and return it."""
        result = self.run("keys", "create", *options)
        assert result.exit_code == 0, result.stderr
        return result.stdout.strip()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    url = f"sqlite:///{folder}/tenure.db"
    first = invoke("keys", "create", "--role", "admin", "--store", url)
    assert first.exit_code == 0, first.stderr
    with ServerProcess(url, folder / "log") as process:
        yield Guarded(process, first.stdout.strip(), folder / "log")


def key_id(key: str) -> str:
    return key.split("_")[1]


def test_nothing_but_the_key_goes_to_stdout(guarded: Guarded) -> None:
    result = guarded.run("keys", "create", "--role", "worker", "--namespace", "default")
    assert KEY.fullmatch(result.stdout)
    assert "worker key" in result.stderr
    assert "default/default" in result.stderr
    assert result.stdout.strip() not in result.stderr
    made = read(guarded.run("keys", "create", "--role", "viewer", "--name", "eye", "-o", "json"))
    assert KEY.fullmatch(made["key"] + "\n")
    assert (made["name"], made["role"], made["namespaces"]) == ("eye", "viewer", [])
    assert made["createdBy"] == key_id(guarded.admin)


def test_the_first_key_is_made_in_the_store_itself(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    assert KEY.fullmatch(invoke("keys", "create", "--role", "admin", "--store", url).stdout)
    made = read(invoke("keys", "create", "--role", "admin", "--store", url, "-o", "json"))
    assert (made["name"], made["state"]) == ("admin", "LIVE")
    missing = invoke("keys", "create", "--role", "worker", "--namespace", "x", "--store", url)
    assert missing.exit_code == 3
    wrong = invoke("keys", "create", "--role", "admin", "--store", "mysql://x")
    assert wrong.exit_code == 2


def next_step(result: Result) -> str:
    """Return what a failed command advises."""
    return result.stderr.partition("  Next: ")[2]


@pytest.mark.parametrize(
    "options", [("--role", "client"), ("--role", "admin", "--namespace", "default")]
)
def test_the_first_key_locks_nobody_out(tmp_path: Path, options: tuple[str, ...]) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    stored = invoke("keys", "create", *options, "--store", url)
    assert (stored.exit_code, stored.stdout) == (2, "")
    assert "tenure keys create --role admin --store URL\n" in next_step(stored)
    with ServerProcess(url, tmp_path / "log") as server:
        env = {"TENURE_TARGET": server.grpc}
        refused = invoke("keys", "create", *options, env=env)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "must be an admin key for all namespaces" in refused.stderr
        assert "tenure keys create --role admin\n" in next_step(refused)
        body = {"name": "first", "role": "client"}
        assert httpx.post(f"http://{server.http}/v1/api-keys", json=body).status_code == 400
        assert invoke("tasks", "ls", env=env).exit_code == 0
        first = invoke("keys", "create", "--role", "admin", env=env)
        assert "From now on every call needs a key" in first.stderr
        env["TENURE_API_KEY"] = first.stdout.strip()
        made = invoke("keys", "create", *options, env=env)
        assert made.exit_code == 0, made.stderr
        assert "From now on" not in made.stderr


def test_who_is_locked_out_is_told_how_to_get_in(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    admin = invoke("keys", "create", "--role", "admin", "--store", url)
    with ServerProcess(url, tmp_path / "log") as server:
        env = {"TENURE_TARGET": server.grpc, "TENURE_API_KEY": admin.stdout.strip()}
        (key,) = read(invoke("keys", "ls", "-o", "json", env=env))["keys"]
        invoke("keys", "revoke", key["keyId"], env=env)
        out = invoke("tasks", "ls", env=env)
        assert (out.exit_code, "keys create --role admin --store URL" in out.stderr) == (6, True)
        used = invoke("keys", "create", "--role", "admin", "--store", url)
        assert "stop the server first" in used.stderr
        assert server.stop() == 0
    assert invoke("keys", "create", "--role", "worker", "--store", url).exit_code == 2
    assert invoke("keys", "create", "--role", "admin", "--store", url).exit_code == 0


def test_a_store_that_a_server_uses_is_left_to_it(guarded: Guarded) -> None:
    url = f"sqlite:///{guarded.log.parent}/tenure.db"
    result = guarded.run("keys", "create", "--role", "admin", "--store", url)
    assert result.exit_code == 4
    assert "use --target instead of --store" in result.stderr


def test_without_a_key_commands_end_with_6(guarded: Guarded) -> None:
    for key in ("", f"tnr_{'a' * 16}_{'s' * 43}"):
        result = guarded.run("tasks", "ls", key=key)
        assert result.exit_code == 6
        assert "--api-key" in result.stderr
        assert "ssss" not in result.stderr
    viewer = guarded.made("--role", "viewer")
    assert guarded.run("tasks", "enqueue", "x", key=viewer).exit_code == 6
    assert guarded.run("tasks", "ls", key=viewer).exit_code == 0
    assert guarded.run("tasks", "ls", "--api-key", viewer, key="").exit_code == 0
    broken = guarded.run("tasks", "ls", key="schlüssel")
    assert broken.exit_code == 2
    assert "schlüssel" not in broken.stderr


def test_a_key_waits_for_results_too(guarded: Guarded) -> None:
    client = guarded.made("--role", "client")
    result = guarded.run("tasks", "enqueue", "x", "--wait", "--timeout", "50ms", key=client)
    assert result.exit_code == 124


def test_keys_are_listed_shown_and_revoked(guarded: Guarded) -> None:
    key = guarded.made("--role", "client", "--name", "short", "--expires", "1h")
    table = guarded.run("keys", "ls", "--all")
    assert [line for line in table.stdout.splitlines() if line.startswith(key_id(key))]
    listed = read(guarded.run("keys", "ls", "--all", "-o", "json"))["keys"]
    assert {each["keyId"] for each in listed} >= {key_id(key), key_id(guarded.admin)}
    shown = read(guarded.run("keys", "show", key_id(key), "-o", "json"))
    assert (shown["state"], shown["name"]) == ("LIVE", "short")
    assert shown["expiresAt"]
    assert "expires" in guarded.run("keys", "show", key_id(key)).stdout
    revoked = guarded.run("keys", "revoke", key_id(key))
    assert "was revoked" in revoked.stdout
    assert guarded.run("tasks", "ls", key=key).exit_code == 6
    again = read(guarded.run("keys", "revoke", key_id(key), "-o", "json"))
    assert again["state"] == "REVOKED"
    assert guarded.run("keys", "show", "a" * 16).exit_code == 3
    whole = guarded.run("keys", "revoke", guarded.admin)
    assert whole.exit_code == 2
    assert guarded.admin not in whole.stderr


def test_what_was_administered_is_in_the_audit_log(guarded: Guarded) -> None:
    key = guarded.made("--role", "viewer", "--name", "audited")
    found = read(guarded.run("audit", "--action", "key.create", "-o", "json"))["records"]
    assert (found[0]["target"], found[0]["actor"]) == (key_id(key), key_id(guarded.admin))
    assert "key.create" in guarded.run("audit", "--limit", "1").stdout
    mine = guarded.run("audit", "--actor", key_id(key), "-o", "jsonl")
    assert mine.stdout == ""
    assert guarded.run("audit", key=key).exit_code == 6
    assert guarded.run("audit", "--namespace", "nobody").exit_code == 3


def test_no_secret_is_in_the_log_of_the_server(guarded: Guarded) -> None:
    key = guarded.made("--role", "viewer")
    guarded.run("tasks", "enqueue", "x", key=key)
    said = guarded.log.read_text() + "".join(guarded.process.said)
    assert "access.denied" in said
    for each in (key, guarded.admin):
        assert each.split("_", 2)[2] not in said


def test_a_worker_command_takes_the_key_and_ends_with_6_without(
    guarded: Guarded, tmp_path: Path
) -> None:
    (tmp_path / "chores.py").write_text(
        "from tenure import activity\n\n\n@activity(start_to_close='1m')\n"
        "def clean() -> None:\n    pass\n"
    )
    others = {name: text for name, text in os.environ.items() if not name.startswith("TENURE_")}
    ended = subprocess.run(
        [*CLI, "worker", "chores", "--target", guarded.process.grpc],
        cwd=tmp_path,
        env={**others, "TENURE_API_KEY": f"tnr_{'a' * 16}_{'s' * 43}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 6, ended.stderr
    assert "ssss" not in ended.stdout + ended.stderr


ROOT = Path(__file__).parents[2]
KEY_FILE = re.compile(r"^\$ (.*keys create.*>.*)$", re.MULTILINE)


def test_every_key_file_of_the_docs_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """Each line is run in a shell, with a new store instead of a server with namespaces."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = [line for page in pages for line in KEY_FILE.findall(page.read_text())]
    assert lines
    for line in lines:
        command = re.sub(r" --(store|namespace) \S+", "", line)
        command = command.replace(" >", " --store sqlite:///tenure.db >")
        shell = f'tenure() {{ {" ".join(CLI)} "$@"; }}; umask 022; {command}'
        subprocess.run(["/bin/bash", "-c", shell], cwd=tmp_path, check=True, capture_output=True)
    files = list(tmp_path.glob("*.key"))
    assert len(files) == len(lines)
    for each in files:
        assert each.stat().st_mode & 0o777 == 0o600
        assert KEY.fullmatch(each.read_text())


def test_the_key_of_task_tokens_is_rotated(guarded: Guarded) -> None:
    told = guarded.run("keys", "rotate-token-key")
    assert re.fullmatch(r"Servers sign task tokens with key 2 from \S+Z\.\n", told.stdout)
    again = read(guarded.run("keys", "rotate-token-key", "-o", "json"))
    assert again["number"] == 3
    records = read(guarded.run("audit", "--action", "token_key.rotate", "-o", "json"))["records"]
    assert [each["target"] for each in records] == ["3", "2"]
