"""The present certificate: read at the start, read again when its files change."""

from __future__ import annotations

import os
import ssl
import threading
from pathlib import Path

import pytest
import structlog
from cryptography.hazmat.primitives import serialization
from structlog.typing import EventDict

from tenure.api.guard.tls import Certificates, tls_files
from tenure.core.limits import DAY_MS
from tenure.engine.clock import SystemClock
from tenure.errors import InvalidArgument
from tests.api.tls.authority import Authority, Pair, files_of, replace

_CLOCK = SystemClock()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def certificates(pair: Pair, client_ca: Path | None = None) -> Certificates:
    return Certificates(files_of(pair, client_ca), _CLOCK.now_ms)


def look(made: Certificates, times: int = 1) -> list[EventDict]:
    """Return what is logged when the files are looked at."""
    with structlog.testing.capture_logs() as lines:
        for _ in range(times):
            made.run_once()
    return lines


def refusal(pair: Pair, client_ca: Path | None = None) -> tuple[str, str]:
    """Return the field that is refused, and the message."""
    with pytest.raises(InvalidArgument) as caught:
        certificates(pair, client_ca)
    return str(caught.value.fields["field"]), caught.value.message


# -- The start


def test_no_option_is_no_tls_and_half_of_a_pair_is_refused() -> None:
    assert tls_files("", "", "") is None
    with pytest.raises(InvalidArgument, match="needs the private key"):
        tls_files("a.pem", "", "")
    with pytest.raises(InvalidArgument, match="needs a certificate"):
        tls_files("", "a.key", "")
    with pytest.raises(InvalidArgument, match="needs a certificate"):
        tls_files("", "", "ca.pem")


def test_a_missing_file_is_named(authority: Authority) -> None:
    pair = authority.server()
    pair.certificate.unlink()
    field, message = refusal(pair)
    assert field == "tls-cert"
    assert f"{pair.certificate} cannot be read: No such file" in message
    pair = authority.server()
    pair.key.unlink()
    assert refusal(pair)[0] == "tls-key"
    field, message = refusal(authority.server(), pair.key.with_name("none"))
    assert (field, "No such file" in message) == ("tls-client-ca", True)


def test_the_key_of_another_certificate_is_refused(authority: Authority) -> None:
    pair = authority.server()
    pair.key = authority.server("other").key
    field, message = refusal(pair)
    assert field == "tls-key"
    assert "does not belong to the certificate" in message


@pytest.mark.skipif(os.name != "posix", reason="others are a notion of POSIX")
@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602, 0o777])
def test_a_key_that_everybody_can_read_is_refused_with_the_way_to_close_it(
    authority: Authority, mode: int
) -> None:
    pair = authority.server()
    pair.key.chmod(mode)
    field, message = refusal(pair)
    assert field == "tls-key"
    assert f"chmod 0600 {pair.key}" in message
    pair.key.chmod(0o640)
    certificates(pair)


def test_an_encrypted_key_is_refused_without_asking_for_a_password(authority: Authority) -> None:
    pair = authority.server()
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    replace(pair.key, encrypted)
    field, message = refusal(pair)
    assert field == "tls-key"
    assert "encrypted" in message


@pytest.mark.parametrize("kind", ["text", "binary", "empty", "folder", "huge"])
@pytest.mark.parametrize("which", ["certificate", "key", "client_ca"])
def test_a_file_with_something_else_in_it_is_named(
    authority: Authority, tmp_path: Path, which: str, kind: str
) -> None:
    pair, wrong = authority.server(), tmp_path / "wrong.pem"
    client_ca = authority.file
    if kind == "folder":
        wrong.mkdir(0o700)
    else:
        content = {"text": b"hello", "binary": os.urandom(500), "empty": b"", "huge": b"x" * 2**21}
        replace(wrong, content[kind])
    if which == "client_ca":
        client_ca = wrong
    else:
        setattr(pair, which, wrong)
    field, message = refusal(pair, client_ca)
    expected = {"certificate": "tls-cert", "key": "tls-key", "client_ca": "tls-client-ca"}
    assert field == expected[which]
    assert str(wrong) in message


# -- Replacements


def test_a_replaced_pair_is_used_at_once_and_said_once(authority: Authority) -> None:
    pair = authority.server()
    made = certificates(pair)
    before = made.present()
    assert look(made, 2) == []
    authority.server()
    with structlog.testing.capture_logs() as lines:
        after = made.present()
    assert after is not before
    assert after.certificate == pair.certificate.read_bytes()
    assert [line["event"] for line in lines] == ["tls.reloaded"]
    assert look(made, 2) == []
    assert made.present() is after


def test_a_pair_that_does_not_fit_leaves_the_old_one_and_is_said_once(authority: Authority) -> None:
    pair = authority.server()
    made = certificates(pair)
    before = made.present()
    other = authority.issue()
    replace(pair.certificate, other.cert_chain_pems[0].bytes())
    # A certificate that comes a moment before its key is no problem yet.
    assert look(made) == []
    lines = look(made, 3)
    assert [line["event"] for line in lines] == ["tls.reload_failed"]
    assert lines[0]["log_level"] == "warning"
    assert "does not belong to" in lines[0]["error"]
    assert "PRIVATE KEY" not in str(lines)
    assert made.present() is before
    replace(pair.key, other.private_key_pem.bytes())
    assert [line["event"] for line in look(made, 2)] == ["tls.reloaded"]
    assert made.present() is not before


def test_a_half_written_file_leaves_the_old_one_until_it_is_whole(authority: Authority) -> None:
    pair = authority.server()
    made = certificates(pair)
    before = made.present()
    whole = pair.certificate.read_bytes()
    with pair.certificate.open("wb") as file:
        for byte in (whole[at : at + 150] for at in range(0, len(whole) - 150, 150)):
            file.write(byte)
            file.flush()
            assert made.present() is before
    assert [line["event"] for line in look(made, 3)] == ["tls.reload_failed"]
    pair.certificate.write_bytes(whole)
    assert look(made, 2) == []
    assert made.present() is before
    # What fails after that is news again.
    pair.certificate.unlink()
    assert [line["event"] for line in look(made, 3)] == ["tls.reload_failed"]
    assert made.present() is before


def test_a_key_that_was_opened_to_everybody_is_not_taken(authority: Authority) -> None:
    pair = authority.server()
    made = certificates(pair)
    before = made.present()
    authority.server()
    pair.key.chmod(0o644)
    lines = look(made, 2)
    assert ["chmod 0600" in line["error"] for line in lines] == [True]
    assert made.present() is before
    pair.key.chmod(0o600)
    assert made.present() is not before


def test_a_link_that_is_moved_counts_as_a_change(authority: Authority, tmp_path: Path) -> None:
    # As Kubernetes does it: the files are links into a folder that is itself a link.
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        Pair(folder, "tls").write(authority.issue())
    data = tmp_path / "data"
    data.symlink_to(tmp_path / "one")
    pair = Pair(tmp_path, "tls")
    pair.certificate.symlink_to("data/tls.pem")
    pair.key.symlink_to("data/tls.key")
    made = certificates(pair)
    before = made.present()
    (tmp_path / "next").symlink_to(tmp_path / "two")
    (tmp_path / "next").replace(data)
    assert made.present().certificate == (tmp_path / "two" / "tls.pem").read_bytes()
    assert made.present() is not before


def test_an_authority_that_was_removed_is_not_trusted_any_more(
    authority: Authority, tmp_path: Path
) -> None:
    other, file = Authority(tmp_path, "other"), tmp_path / "clients.pem"
    replace(file, authority.pem + other.pem)
    made = certificates(authority.server(), file)
    assert len(made.present().context.get_ca_certs()) == 2
    replace(file, other.pem)
    assert len(made.present().context.get_ca_certs()) == 1
    assert made.present().context.verify_mode is ssl.CERT_REQUIRED
    # An empty list would let everybody in, or nobody.
    replace(file, b"")
    assert [line["event"] for line in look(made, 2)] == ["tls.reload_failed"]
    assert len(made.present().context.get_ca_certs()) == 1


def test_many_threads_may_ask_while_the_files_change(authority: Authority) -> None:
    pair = authority.server()
    made = certificates(pair)
    issued = [authority.issue() for _ in range(20)]
    is_over = threading.Event()
    problems: list[Exception] = []

    def ask() -> None:
        while not is_over.is_set():
            try:
                made.present().context.cert_store_stats()
            except Exception as error:  # noqa: BLE001 (it fails the test)
                problems.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for each in issued:
        pair.write(each)
    is_over.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert made.present().certificate == pair.certificate.read_bytes()


# -- The end of a certificate


@pytest.mark.parametrize(
    ("days", "event"),
    [(-1, "tls.certificate_expired"), (29, "tls.certificate_expires"), (60, None)],
)
def test_an_end_that_is_near_is_recalled_each_day(
    authority: Authority, days: int, event: str | None
) -> None:
    pair = authority.server()
    pair.write(authority.issue(days=days))
    now_ms = _CLOCK.now_ms()
    made = Certificates(files_of(pair), lambda: now_ms)
    expected = [] if event is None else [event]
    assert [line["event"] for line in look(made, 5)] == expected
    now_ms += DAY_MS // 2
    assert look(made) == []
    now_ms += DAY_MS // 2
    assert [line["event"] for line in look(made, 5)] == expected
    # A new one ends the warnings.
    pair.write(authority.issue())
    assert [line["event"] for line in look(made, 5)] == ["tls.reloaded"]
    now_ms += DAY_MS
    assert look(made) == []
