"""What a server reads of its certificate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from tenure.api.guard.certificate import read_facts

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tenure")])
_SOON = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def make(key: Key, ends_at: datetime = _SOON) -> bytes:
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(key.public_key())
        .serial_number(2**100)
        .not_valid_before(ends_at - timedelta(days=1))
        .not_valid_after(ends_at)
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 9999])
def test_the_end_is_read_in_both_forms_of_an_instant(year: int) -> None:
    ends_at = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    pem = make(ec.generate_private_key(ec.SECP256R1()), ends_at)
    assert read_facts(pem).expires_at_s == int(ends_at.timestamp())


@pytest.mark.parametrize(
    ("key", "is_served"),
    [
        (rsa.generate_private_key(65537, 2048), True),
        (ec.generate_private_key(ec.SECP256R1()), True),
        (ec.generate_private_key(ec.SECP384R1()), True),
        (ec.generate_private_key(ec.SECP521R1()), False),
        (ed25519.Ed25519PrivateKey.generate(), False),
    ],
    ids=["rsa", "p256", "p384", "p521", "ed25519"],
)
def test_keys_that_grpc_cannot_serve_with_are_known(key: Key, is_served: bool) -> None:
    assert read_facts(make(key)).is_key_served is is_served


def test_the_first_certificate_of_a_chain_is_that_of_the_server() -> None:
    first = make(ec.generate_private_key(ec.SECP256R1()))
    second = make(ec.generate_private_key(ec.SECP256R1()), _SOON + timedelta(days=9))
    text = b"subject: tenure\r\n" + first.replace(b"\n", b"\r\n") + second
    assert read_facts(text).expires_at_s == int(_SOON.timestamp())


def test_whatever_is_cut_off_or_changed_is_refused_or_read_and_never_anything_else() -> None:
    pem = make(ec.generate_private_key(ec.SECP256R1()))
    lines = pem.splitlines(keepends=True)
    wrong = [pem[:at] for at in range(0, len(pem), 7)]
    wrong += [b"".join([*lines[:at], *lines[at + 1 :]]) for at in range(len(lines))]
    wrong += [pem[:at] + b"A" + pem[at + 1 :] for at in range(30, len(pem) - 30, 3)]
    refused = 0
    for each in wrong:
        try:
            read_facts(each)
        except ValueError:
            refused += 1
    assert refused > len(wrong) // 4


@pytest.mark.parametrize("text", [b"", b"certificate", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----"])
def test_what_is_no_certificate_is_said_so(text: bytes) -> None:
    with pytest.raises(ValueError, match="no readable certificate"):
        read_facts(text)
