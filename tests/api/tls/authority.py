"""Authorities that issue certificates, and the files that a server or a client is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from tenure.api.guard.tls import TlsFiles
from tenure.sdk.transport.tls import TLS


class Pair:
    """A certificate and its key, in two files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate = folder / f"{name}.pem"
        self.key = folder / f"{name}.key"

    def write(self, issued: trustme.LeafCert) -> Pair:
        """Replace both files, each at once."""
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        replace(self.key, issued.private_key_pem.bytes())
        replace(self.certificate, chain)
        return self


def replace(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put a new file in the place of another."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.chmod(mode)
    new.replace(path)


class Authority:
    """One who issues certificates for this machine."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.file = folder / f"{name}.pem"
        self.pem = self._ca.cert_pem.bytes()
        replace(self.file, self.pem)

    def issue(self, *hosts: str, days: float = 365) -> trustme.LeafCert:
        """Return a certificate that is valid for so many days from now."""
        ends_at = datetime.now(UTC) + timedelta(days=days)
        begins_at = min(ends_at, datetime.now(UTC)) - timedelta(days=1)
        return self._ca.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")), not_before=begins_at, not_after=ends_at
        )

    def server(self, name: str = "server") -> Pair:
        """Return the files of a new certificate for a server here."""
        return Pair(self._folder, name).write(self.issue())

    def client(self, name: str = "client", *, days: float = 365) -> Pair:
        """Return the files of a new certificate for a client."""
        return Pair(self._folder, name).write(self.issue("client@example.org", days=days))


def files_of(pair: Pair, client_ca: Path | None = None) -> TlsFiles:
    """Return what a server is told."""
    return TlsFiles(
        certificate=str(pair.certificate),
        key=str(pair.key),
        client_ca="" if client_ca is None else str(client_ca),
    )


def trust(authority: Authority, pair: Pair | None = None) -> TLS:
    """Return what a client is told."""
    if pair is None:
        return TLS(ca=authority.file)
    return TLS(ca=authority.file, certificate=pair.certificate, key=pair.key)
