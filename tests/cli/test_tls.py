"""TLS on the command line: options and variables, refusals, and a server that is replaced."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenure.cli.client.invocation import Invocation
from tests.api.tls.authority import Authority, Pair, files_of
from tests.api.tls.running import Running, running
from tests.cli.command_process import CommandProcess
from tests.cli.conftest import invoke


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def secure(tmp_path: Path, authority: Authority) -> Iterator[Running]:
    """Return a server that wants certificates of its clients."""
    with running(tmp_path, files_of(authority.server(), authority.file)) as made:
        yield made


def flags(authority: Authority, pair: Pair | None = None) -> list[str]:
    found = ["--tls-ca", str(authority.file)]
    if pair is not None:
        found += ["--tls-cert", str(pair.certificate), "--tls-key", str(pair.key)]
    return found


def test_options_and_variables_name_the_files(authority: Authority, secure: Running) -> None:
    pair = authority.client()
    listed = invoke("tasks", "ls", "--target", secure.target, *flags(authority, pair))
    assert listed.exit_code == 0, listed.output
    environment = {
        "TENURE_TARGET": secure.target,
        "TENURE_TLS_CA": str(authority.file),
        "TENURE_TLS_CERT": str(pair.certificate),
        "TENURE_TLS_KEY": str(pair.key),
    }
    assert invoke("queues", "ls", env=environment).exit_code == 0
    refused = invoke("queues", "ls", "--no-tls", env=environment)
    assert refused.exit_code == 5
    assert "If the server uses TLS, connect with --tls" in refused.stderr
    assert invoke("queues", "ls", env={**environment, "TENURE_TLS": "0"}).exit_code == 5


def test_what_cannot_be_trusted_ends_with_code_5_and_what_to_do(
    tmp_path: Path, authority: Authority, secure: Running
) -> None:
    other = Authority(tmp_path, "other")
    cases = {
        "is not trusted": flags(other),
        "It may require a client certificate": flags(authority),
        "see --tls-cert and --tls-key": flags(authority, other.client("foreign")),
        "connect with --tls, or TENURE_TLS=1": [],
    }
    for text, options in cases.items():
        result = invoke("tasks", "ls", "--target", secure.target, *options)
        assert result.exit_code == 5
        assert text in result.stderr
    result = invoke("tasks", "ls", "--target", secure.target, "--tls", "-o", "json")
    assert json.loads(result.stderr)["error"] == "unreachable"


def test_files_that_cannot_be_used_are_a_mistake_of_usage(
    tmp_path: Path, authority: Authority
) -> None:
    pair = authority.client()
    for options in (
        ["--tls-ca", str(tmp_path / "none.pem")],
        ["--tls-cert", str(pair.certificate)],
        ["--tls-cert", str(pair.key), "--tls-key", str(pair.key)],
    ):
        result = invoke("tasks", "ls", *options)
        assert result.exit_code == 2
        assert "--tls-ca" in result.stderr


@pytest.mark.parametrize("command", ["server", "tasks ls", "worker", "namespaces ls"])
def test_the_help_names_the_options(command: str) -> None:
    said = invoke(*command.split(), "--help").stdout
    assert "--tls-cert" in said
    assert "--tls-key" in said


def test_a_server_that_cannot_be_started_ends_with_code_2_and_what_to_do(
    tmp_path: Path, authority: Authority
) -> None:
    pair, other = authority.server(), authority.server("other")
    loose = authority.server("loose")
    loose.key.chmod(0o644)
    cert = ("--tls-cert", str(pair.certificate))
    cases: dict[str, tuple[str, ...]] = {
        "needs the private key": cert,
        "needs a certificate": ("--tls-key", str(pair.key)),
        "No such file": (*cert, "--tls-key", str(tmp_path / "none.key")),
        "does not belong to": (*cert, "--tls-key", str(other.key)),
        "chmod 0600": ("--tls-cert", str(loose.certificate), "--tls-key", str(loose.key)),
    }
    store = f"sqlite:///{tmp_path}/tenure.db"
    for text, options in cases.items():
        result = invoke("server", "--store", store, "--http", "127.0.0.1:0", *options)
        assert result.exit_code == 2, result.output
        assert text in result.stderr
        assert "Change --tls-" in result.stderr
        assert "PRIVATE KEY-----" not in result.output
    assert not (tmp_path / "tenure.db").exists()


def test_a_server_process_serves_both_edges_and_a_worker_with_tls(
    tmp_path: Path, authority: Authority
) -> None:
    pair = authority.server()
    (tmp_path / "app.py").write_text(
        "from tenure import activity\n\n\n"
        '@activity(start_to_close="1m")\n'
        "def double(number: int) -> int:\n    return 2 * number\n"
    )
    with CommandProcess(
        tmp_path,
        *("server", "--store", f"sqlite:///{tmp_path}/tenure.db"),
        *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"),
        *("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key)),
    ) as server:
        said = dict(
            each.split("=", 1)
            for each in server.until("Tenure is listening").split()
            if "=" in each
        )
        assert f"https://{said['http']}/docs" in server.until("/docs")
        trusted = ssl.create_default_context(cafile=authority.file)
        url = f"https://{said['http']}/healthz"
        with urllib.request.urlopen(url, timeout=10, context=trusted) as answer:
            assert answer.status == 200
        options = ("--target", said["grpc"], *flags(authority))
        with CommandProcess(tmp_path, "worker", "app", *options) as worker:
            worker.until("Tenure worker is registered")
            done = invoke(
                *("tasks", "enqueue", "double", "--input", '{"number": 21}', "--wait"), *options
            )
            assert done.exit_code == 0, done.output
            assert "42" in done.stdout


def test_a_key_that_others_can_read_on_the_way_is_warned_of() -> None:
    key = "tnr_" + 16 * "a" + "_" + 43 * "b"
    far, near = "192.0.2.1:7301", "127.0.0.1:1"
    for target, is_warned in ((far, True), (near, False)):
        with CliRunner().isolation() as (_, errors, _):
            call = Invocation(target, "default", "table", api_key=key)
            call.client.close()
            said = errors.getvalue().decode()
        assert ("without TLS. Use --tls." in said) is is_warned
        assert key not in said
