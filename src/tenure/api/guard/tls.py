"""TLS of both edges: one certificate, read again when its files change, without a restart.

Each connection is opened with the present content of the files, so a replacement affects new
connections at once and open ones not at all. Files that do not match are reported, and the previous
content stays in use.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import grpc
import msgspec
import structlog

from tenure.core import limits
from tenure.errors import InvalidArgument

log = structlog.get_logger("tenure.api")

_OTHERS: Final = stat.S_IRWXO

_Stamp = tuple[tuple[int, ...] | None, ...]


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where certificate and key are, both PEM; with ``client_ca`` clients need a certificate."""

    certificate: str
    key: str
    client_ca: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the given files."""
        return tuple(filter(None, (self.certificate, self.key, self.client_ca)))


def tls_files(certificate: str, key: str, client_ca: str) -> TlsFiles | None:
    """Return the TLS options of the server, or None for no TLS."""
    if not certificate and not key and not client_ca:
        return None
    if not certificate:
        message = "TLS needs a certificate. Name its file, with its chain, as PEM."
        raise InvalidArgument(message, field="tls-cert")
    if not key:
        message = "TLS needs the private key of the certificate. Name its file, as PEM."
        raise InvalidArgument(message, field="tls-key")
    return TlsFiles(certificate=certificate, key=key, client_ca=client_ca)


class Material:
    """The content of the files, which was valid when it was read."""

    # Not a record: its repr would print the key.
    __slots__ = ("certificate", "client_ca", "context", "expires_at_ms", "key")

    def __init__(self, files: TlsFiles) -> None:
        """Read and check; ``InvalidArgument`` says what is wrong with which file."""
        self.certificate = _read(files.certificate, "tls-cert")
        self.key = _read(files.key, "tls-key")
        self.client_ca = _read(files.client_ca, "tls-client-ca") if files.client_ca else b""
        self.expires_at_ms = _expires_at_ms(self.certificate, files.certificate)
        self.context = _context(files, self.client_ca)


class Certificates:
    """The present certificate; may be used from any thread, because gRPC uses its own."""

    def __init__(self, files: TlsFiles, now_ms: Callable[[], int]) -> None:
        """Read the files; ``InvalidArgument`` if nothing can be served with them."""
        self._files = files
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._seen = self._looked_at = _stamp(files)
        self._material = Material(files)
        self._problem = ""
        self._told_problem = ""
        self._reminded_at_ms: int | None = None

    @property
    def expires_at_ms(self) -> int:
        """The expiry of the present certificate."""
        return self._material.expires_at_ms

    @property
    def wants_client_certificates(self) -> bool:
        """Return whether clients have to present a certificate."""
        return bool(self._files.client_ca)

    def present(self) -> Material:
        """Return the content for the next connection; changed files are read."""
        seen = _stamp(self._files)
        if seen != self._seen:
            with self._lock:
                self._read_again()
        return self._material

    def _read_again(self) -> None:
        seen = _stamp(self._files)
        if seen == self._seen:
            return
        try:
            material = Material(self._files)
        except InvalidArgument as error:
            self._seen, self._problem = seen, error.message
            return
        if _stamp(self._files) != seen:
            # They were replaced while they were read: the next check reads them again.
            return
        self._seen, self._problem, self._told_problem = seen, "", ""
        if _is_same(material, self._material):
            return
        self._material, self._reminded_at_ms = material, None
        log.info("tls.reloaded", certificate=self._files.certificate)

    async def watch(self) -> None:
        """Check the files until cancelled, also while no client connects."""
        while True:
            try:
                self.run_once()
            except Exception:
                # The previous content stays in use, and the next check may succeed.
                log.exception("tls.check_failed")
            await asyncio.sleep(limits.TLS_LOOK_MS / 1_000)

    def run_once(self) -> None:
        """Check once: report files that do not match, and an expiry that is near.

        Certificate and key are two files. One may be written a moment before the other, so only a
        problem that the last check found too is logged.
        """
        self.present()
        is_settled, self._looked_at = self._looked_at == self._seen, self._seen
        if is_settled and self._problem != self._told_problem:
            self._told_problem = self._problem
            log.warning(
                "tls.reload_failed",
                error=self._problem,
                advice="The previous certificate stays in use. Correct the files.",
            )
        self._remind()

    def _remind(self) -> None:
        now_ms = self._now_ms()
        left_ms = self.expires_at_ms - now_ms
        if left_ms > limits.TLS_EXPIRY_NEAR_MS:
            return
        last_ms = self._reminded_at_ms
        if last_ms is not None and now_ms - last_ms < limits.TLS_REMIND_MS:
            return
        self._reminded_at_ms = now_ms
        log.warning(
            "tls.certificate_expired" if left_ms <= 0 else "tls.certificate_expires",
            certificate=self._files.certificate,
            days_left=left_ms // limits.DAY_MS,
            advice="Replace the files of certificate and key; no restart is needed.",
        )

    def http_context(self) -> ssl.SSLContext:
        """Return a context for the event loop that opens each connection with the present one."""
        context = _PresentContext(ssl.PROTOCOL_TLS_SERVER)
        context.source = self
        return context

    def rpc_credentials(self) -> grpc.ServerCredentials:
        """Return credentials of gRPC, which asks for the present ones with each connection."""
        given = self.present()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            now = self.present()
            if now is given:
                return None
            given = now
            return _configuration(now)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(given),
            # None means that nothing has changed; the types of gRPC do not know it.
            cast("Callable[[], grpc.ServerCertificateConfiguration]", fetch),
            require_client_authentication=self.wants_client_certificates,
        )


class _PresentContext(ssl.SSLContext):
    """Delegates to the present context.

    An authority cannot be removed from a context, and a context resumes sessions that it began with
    an older certificate. So there is a new one for each replacement. Event loops keep the context
    that a server was started with, and this class gets the present one for each connection.
    """

    source: Certificates

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:  # noqa: ANN401 (as it is)
        """Begin a connection."""
        return self.source.present().context.wrap_bio(*args, **options)


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], material.client_ca or None
    )


def _stamp(files: TlsFiles) -> _Stamp:
    """Return a value that changes with a file: also when a link to it, or to its folder, moves."""
    return tuple(map(_stamp_of, files.paths))


def _stamp_of(path: str) -> tuple[int, ...] | None:
    try:
        seen = Path(path).stat()
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns)


def _is_same(one: Material, other: Material) -> bool:
    return (one.certificate, one.key, one.client_ca) == (
        other.certificate,
        other.key,
        other.client_ca,
    )


def _read(path: str, field: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            if field == "tls-key":
                _check_private(path, os.fstat(file.fileno()).st_mode)
            data = file.read(limits.TLS_FILE_BYTES_MAX + 1)
    except OSError as error:
        message = f"The file {path} cannot be read: {error.strerror or type(error).__name__}."
        raise InvalidArgument(message, field=field) from None
    if len(data) > limits.TLS_FILE_BYTES_MAX:
        message = f"The file {path} is too large for a certificate. Check the path."
        raise InvalidArgument(message, field=field)
    return data


def _check_private(path: str, mode: int) -> None:
    if os.name == "posix" and mode & _OTHERS:
        message = (
            f"The private key {path} can be read by everybody on this machine "
            f"(mode {stat.S_IMODE(mode):04o}). Restrict it with: chmod 0600 {path} "
            "(0640 if its group has to read it)."
        )
        raise InvalidArgument(message, field="tls-key")


def _expires_at_ms(certificate: bytes, path: str) -> int:
    from tenure.api.guard.certificate import read_facts  # noqa: PLC0415 (large, and only for TLS)

    try:
        facts = read_facts(certificate)
    except ValueError as error:
        message = f"The file {path} cannot be used: {error}. It has to be PEM."
        raise InvalidArgument(message, field="tls-cert") from None
    if not facts.is_key_served:
        message = (
            f"The certificate {path} has a kind of key that gRPC does not support. "
            "Use RSA, or ECDSA with P-256 or P-384."
        )
        raise InvalidArgument(message, field="tls-cert")
    return facts.expires_at_s * 1_000


def _context(files: TlsFiles, client_ca: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A client that resumes a session presents no certificate.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.certificate, files.key, password=_refuse_password)
    except ssl.SSLError as error:
        raise _unfit(files, error) from None
    except (OSError, ValueError) as error:
        # It was there a moment ago, or needs a password.
        message = f"The private key {files.key} cannot be used: {error}."
        raise InvalidArgument(message, field="tls-key") from None
    if files.client_ca:
        _require_clients(context, client_ca, files.client_ca)
    return context


def _refuse_password() -> NoReturn:
    raise ValueError("it is encrypted; a server cannot ask for a password")


def _unfit(files: TlsFiles, error: ssl.SSLError) -> InvalidArgument:
    """Return what is wrong with a pair whose certificate is readable."""
    # It is None for text that is not PEM.
    reason = cast("str | None", error.reason)
    if reason == "KEY_VALUES_MISMATCH":
        message = (
            f"The private key {files.key} does not belong to the certificate {files.certificate}. "
            "Name the key that it was issued for; the certificate of the server comes first in its "
            "file, before its chain."
        )
        return InvalidArgument(message, field="tls-key")
    if reason is None or "PEM" in reason:
        message = f"The private key {files.key} cannot be read. It has to be PEM, unencrypted."
        return InvalidArgument(message, field="tls-key")
    why = reason.replace("_", " ").lower()
    message = f"The certificate {files.certificate} cannot be used: {why}. Issue another one."
    return InvalidArgument(message, field="tls-cert")


def _require_clients(context: ssl.SSLContext, client_ca: bytes, path: str) -> None:
    try:
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
    except (ssl.SSLError, ValueError):
        message = f"The file {path} contains no certificate of an authority. It has to be PEM."
        raise InvalidArgument(message, field="tls-client-ca") from None
    context.verify_mode = ssl.CERT_REQUIRED
