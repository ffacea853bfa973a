"""TLS of the calls to served workers: the server is the client there."""

from __future__ import annotations

from pathlib import Path

import grpc
import msgspec

from tenure.errors import InvalidArgument


class ServedTls(msgspec.Struct, frozen=True, kw_only=True):
    """The files for TLS to served workers: whom to trust, and the server's own certificate."""

    ca: str
    certificate: str = ""
    key: str = ""


def served_tls(ca: str, certificate: str, key: str) -> ServedTls | None:
    """Return the TLS options for calls to served workers, or None for no TLS."""
    if not ca and not certificate and not key:
        return None
    if not ca:
        message = "Name the authorities of the certificates of served workers, as PEM."
        raise InvalidArgument(message, field="served-ca")
    if bool(certificate) != bool(key):
        field = "served-key" if certificate else "served-cert"
        message = "A certificate for calls to served workers needs its private key, and vice versa."
        raise InvalidArgument(message, field=field)
    return ServedTls(ca=ca, certificate=certificate, key=key)


def credentials(tls: ServedTls) -> grpc.ChannelCredentials:
    """Read the files: a replaced certificate counts from the next connection on."""
    try:
        return grpc.ssl_channel_credentials(
            root_certificates=Path(tls.ca).read_bytes(),
            private_key=Path(tls.key).read_bytes() if tls.key else None,
            certificate_chain=Path(tls.certificate).read_bytes() if tls.certificate else None,
        )
    except OSError as error:
        message = f"A file for calls to served workers cannot be read: {error.strerror}."
        raise InvalidArgument(message, field="served-ca") from error
