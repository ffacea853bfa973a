"""The facts about a server's certificate: its expiry, and its kind of key."""

from __future__ import annotations

from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

_CURVES: Final = (ec.SECP256R1, ec.SECP384R1)


class CertificateFacts(NamedTuple):
    """The facts. gRPC does not support every kind of key of the standard library."""

    expires_at_s: int
    is_key_served: bool


def read_facts(pem: bytes) -> CertificateFacts:
    """Return the facts of the first certificate, that of the server; else raise ``ValueError``."""
    try:
        first = x509.load_pem_x509_certificates(pem)[0]
    except ValueError as error:
        raise ValueError("it contains no readable certificate") from error
    return CertificateFacts(int(first.not_valid_after_utc.timestamp()), _is_key_served(first))


def _is_key_served(certificate: x509.Certificate) -> bool:
    try:
        key = certificate.public_key()
    except (UnsupportedAlgorithm, ValueError):
        return False
    is_curve = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES)
    return is_curve or isinstance(key, rsa.RSAPublicKey)
