"""The settings of a server process; validated once, then immutable."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from tenure.api.guard.served_tls import ServedTls
from tenure.api.guard.tls import TlsFiles
from tenure.core import limits
from tenure.core.address import AllowList
from tenure.errors import InvalidArgument

_PORT_MAX = 65_535
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?")


class Address(msgspec.Struct, frozen=True):
    """Where a server listens; port 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it as text: an IPv6 host is in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address always means this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_host(text: str) -> str:
    """Read the name or the address of a host, without a port."""
    host = text.removeprefix("[").removesuffix("]").lower()
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _HOST_NAME.fullmatch(host):
        message = "allow-host must be a name or an address without a port, such as tenure.internal"
        raise InvalidArgument(message, field="allow-host")
    return host


def parse_address(text: str, field: str) -> Address:
    """Read ``host:port``; an IPv6 host is in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise InvalidArgument(f"{field} must be host:port, such as 127.0.0.1:7300", field=field)
    number = int(port)
    if number > _PORT_MAX:
        raise InvalidArgument(f"{field} has a port above {_PORT_MAX}", field=field)
    return Address(host, number)


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting has a unit in its name, a default, and a reason in ``core.limits``."""

    http: Address = Address("127.0.0.1", 7300)
    grpc: Address = Address("127.0.0.1", 7301)
    body_bytes_max: int = limits.REQUEST_BYTES_MAX
    # Rates of one namespace, and of one worker's heartbeats; 0 means no limit.
    enqueues_per_s: int = limits.ENQUEUES_PER_S
    registrations_per_s: int = limits.REGISTRATIONS_PER_S
    lists_per_s: int = limits.LISTS_PER_S
    beats_per_s: int = limits.BEATS_PER_S
    # Of one namespace at a time.
    sessions_max: int = limits.SESSIONS_MAX
    polls_max: int = limits.POLLS_MAX
    waits_max: int = limits.WAITS_MAX
    shutdown_ms: int = limits.SHUTDOWN_MS
    is_insecure: bool = False
    # More host names that an open server answers for, without ports.
    allow_hosts: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    # Where served workers may listen besides the host from which they register.
    served_allow: AllowList = AllowList()
    served_tls: ServedTls | None = None
    # What endpoints may be besides public ones with https, and where their processes call back.
    endpoint_allow: AllowList = AllowList()
    callback_url: str = ""

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        assert self.body_bytes_max > 0
        assert min(self.enqueues_per_s, self.registrations_per_s) >= 0
        assert min(self.lists_per_s, self.beats_per_s) >= 0
        assert min(self.sessions_max, self.polls_max, self.waits_max) > 0
        assert self.shutdown_ms > 0

    @property
    def exposed(self) -> tuple[tuple[str, Address], ...]:
        """Return the addresses that other machines can reach, by the names of their settings."""
        both = (("http", self.http), ("grpc", self.grpc))
        return tuple(pair for pair in both if not pair[1].is_loopback)
