"""TLS of clients and workers: settings, files, and explanations of failures.

Files are read when a channel is opened, so that one which takes the place of another already uses
what has been replaced since.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import msgspec

if TYPE_CHECKING:
    import grpc

# The words of the command line.
_YES: Final = frozenset({"1", "true", "t", "yes", "y", "on"})
_NO: Final = frozenset({"0", "false", "f", "no", "n", "off"})
_IN_FOLDER: Final = re.compile(r"[0-9a-f]{8}\.\d+")


class TLS(msgspec.Struct, frozen=True, kw_only=True):
    """How to speak TLS with a server; all files are PEM.

    >>> Client("tasks.example.com:7301", tls=TLS(ca="ca.pem"))
    >>> Client("tasks.example.com:7301", tls=TLS(certificate="me.pem", key="me.key"))

    ``ca`` holds the authorities to trust, those of the operating system unless it is given.
    ``certificate``, with its chain, and ``key`` are shown to servers that want to see them.
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        """Refuse one half of a pair."""
        if (self.certificate is None) != (self.key is None):
            raise ValueError("TLS needs both certificate and key, or neither.")

    @property
    def paths(self) -> tuple[str, str, str]:
        """Return the files as text, empty for those that there are not."""
        ca, certificate, key = (
            "" if each is None else os.fspath(each)
            for each in (self.ca, self.certificate, self.key)
        )
        return ca, certificate, key


class _Pem(NamedTuple):
    ca: bytes | None
    certificate: bytes | None
    key: bytes | None


def resolve(tls: TLS | bool | None) -> TLS | None:  # noqa: FBT001 (as users say it)
    """Return how to speak TLS, or None for not at all; what was not said, the environment says.

    Raises ``ValueError`` for files that cannot be used.
    """
    if tls is None:
        tls = _from_environment()
    if isinstance(tls, bool):
        return TLS() if tls else None
    if not isinstance(tls, TLS):
        raise TypeError(f"tls must be True, False or a TLS, not {type(tls).__name__}")
    return checked(tls)


def checked(tls: TLS) -> TLS:
    """Return it if its files can be used; else raise ``ValueError``."""
    _read(tls)
    return tls


def of_paths(ca: str, certificate: str, key: str) -> TLS:
    """Return the settings with these files; an empty name is none."""
    return TLS(ca=ca or None, certificate=certificate or None, key=key or None)


def _from_environment() -> TLS | bool:
    said = os.environ.get("TENURE_TLS", "").strip().lower()
    if said and said not in _YES | _NO:
        raise ValueError("TENURE_TLS must be 1 or 0.")
    if said in _NO:
        return False
    paths = [os.environ.get(f"TENURE_TLS_{name}", "") for name in ("CA", "CERT", "KEY")]
    # A named file turns TLS on.
    return of_paths(*paths) if said or any(paths) else False


def credentials(tls: TLS) -> grpc.ChannelCredentials:
    """Read the files for a new channel; a ``ValueError`` says which of them cannot be used."""
    from tenure.transport import grpc  # noqa: PLC0415 (forks are safe while it is not loaded)

    pem = _read(tls)
    return grpc.ssl_channel_credentials(
        pem.ca if tls.ca is not None else system_roots(), pem.key, pem.certificate
    )


def _read(tls: TLS) -> _Pem:
    """Read and check what gRPC would not say a word about."""
    ca, certificate, key = tls.paths
    pem = _Pem(*(_read_file(path) if path else None for path in (ca, certificate, key)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if pem.ca is not None:
        try:
            context.load_verify_locations(cadata=pem.ca.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise ValueError(f"The file {ca} contains no certificate of an authority.") from None
    if certificate:
        try:
            context.load_cert_chain(certificate, key, password=_refuse_password)
        except ssl.SSLError as error:
            is_other = error.reason == "KEY_VALUES_MISMATCH"
            why = "do not belong together" if is_other else "cannot be read as PEM"
            raise ValueError(f"The certificate {certificate} and the key {key} {why}.") from None
    return pem


def _refuse_password() -> NoReturn:
    raise ValueError("The private key is encrypted. Use one without a password.")


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ValueError(f"The file {path} cannot be read: {why}.") from None


def system_roots() -> bytes | None:
    """Return the authorities of this machine, as Python finds them; None leaves it to gRPC."""
    where = ssl.get_default_verify_paths()
    if where.cafile:
        return Path(where.cafile).read_bytes()
    if where.capath:
        files = sorted(Path(where.capath).iterdir())
        found = [each.read_bytes() for each in files if _IN_FOLDER.fullmatch(each.name)]
    else:
        known = ssl.create_default_context().get_ca_certs(binary_form=True)
        found = [ssl.DER_cert_to_PEM_cert(each).encode() for each in known]
    return b"\n".join(found) or None


class Words(NamedTuple):
    """What the settings are called where the user has made them."""

    on: str
    ca: str
    certificate: str


class Trouble(NamedTuple):
    """What is wrong between a client and a server, and what to do."""

    what: str
    advice: str


IN_CODE: Final = Words("tls=True", "tls=TLS(ca=...)", "tls=TLS(certificate=..., key=...)")


def trouble(details: str, target: str, words: Words, *, is_tls: bool) -> Trouble | None:
    """Return what gRPC's account of a connection that was not made says about TLS, if it does."""
    said = details.lower()
    for mark, what, advice in _TROUBLES:
        if mark in said:
            return Trouble(what.format(target=target), advice.format(**words._asdict()))
    if not any(mark in said for mark in _HUNG_UP):
        return None
    what, advice = _REFUSED if is_tls else _MUTE
    return Trouble(what.format(target=target), advice.format(**words._asdict()))


# How gRPC says that an HTTP server has answered.
SPEAKS_HTTP: Final = ("http1.x server", "http/1.")
_NO_GRPC: Final = (
    "{target} does not speak gRPC.",
    "It may be the HTTP port. Use the gRPC port, which is 7301 by default.",
)
_TROUBLES: Final = (
    (
        "wrong_version_number",
        "The server at {target} does not speak TLS.",
        "Connect without TLS, or start the server with --tls-cert and --tls-key.",
    ),
    (
        "certificate has expired",
        "The certificate of the server at {target} has expired.",
        "Replace it where the server runs; it need not be restarted.",
    ),
    (
        "certificate_verify_failed",
        "The certificate of the server at {target} is not trusted.",
        "Name the authority that has issued it, with {ca} or TENURE_TLS_CA.",
    ),
    (
        "hostname verification",
        "The certificate of the server at {target} is for another host.",
        "Use a name that is in the certificate, or issue one for this name.",
    ),
    (
        "not in peer certificate",
        "The certificate of the server at {target} is for another host.",
        "Use a name that is in the certificate, or issue one for this name.",
    ),
    *((mark, *_NO_GRPC) for mark in ("alpn", *SPEAKS_HTTP)),
)
_HUNG_UP: Final = ("socket closed", "connection reset", "handshake read failed")
_MUTE: Final = (
    "What listens at {target} closed the connection at once.",
    (
        "Check the port: the gRPC port of a server is 7301 by default. If the server uses TLS, "
        "connect with {on}, or TENURE_TLS=1."
    ),
)
_REFUSED: Final = (
    "The server at {target} closed the connection after the TLS handshake.",
    (
        "It may require a client certificate, or not trust the one it got: see {certificate}, "
        "or TENURE_TLS_CERT and TENURE_TLS_KEY."
    ),
)


def is_exposed(targets: Sequence[str], api_key: str, tls: TLS | None) -> bool:
    """Tell whether a key would be sent for others on the network to read."""
    return bool(api_key) and tls is None and not all(map(_is_near, targets))


def _is_near(target: str) -> bool:
    """Tell whether only this machine sees what goes to a target."""
    if target.startswith("unix:"):
        return True
    host = target.rpartition(":")[0].rpartition("/")[2].removeprefix("ipv4:").removeprefix("ipv6:")
    host = host.removeprefix("dns:").strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
