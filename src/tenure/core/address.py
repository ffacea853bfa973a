"""Which addresses a server may connect to when somebody else has chosen them.

A URL of an endpoint or the address of a served worker comes from outside, and the server stands in
the network of its operator. So the rule names what is allowed: public addresses, and what the
operator has allowed. `ipaddress.is_global` does not say what is public: it accepts multicast and
the IPv6 networks that lead to any IPv4 address.
"""

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NoReturn, TypeAlias

import msgspec

from tenure.core import limits
from tenure.errors import InvalidArgument

IPAddress: TypeAlias = IPv4Address | IPv6Address
IPNetwork: TypeAlias = IPv4Network | IPv6Network
AddressRule: TypeAlias = Callable[[IPAddress], bool]

_PORT_MAX: Final = 65_535
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

# IPv4 networks of the IANA registry of special addresses, and multicast.
_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",  # this network; Linux connects 0.0.0.0 to itself
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind the NAT of a provider; metadata of one cloud
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local: metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; metadata of one cloud
        "192.0.2.0/24",
        "192.88.99.0/24",  # relays from IPv6 to IPv4
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",  # a public number that is the host of a machine in one cloud
    )
)
# Everything else in IPv6 is special: mapped and compatible IPv4, NAT64, local, multicast.
_UNICAST_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(each)
    for each in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",
        "2002::/16",  # 6to4: leads to the IPv4 address in it
        "3ffe::/16",
        "3fff::/20",
    )
)
# The lower half of an ISATAP address begins so, and its end is the IPv4 address that it leads to.
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
# No host, every host, or an IPv4 address in a form that no resolver returns.
_NO_HOST: Final = tuple(
    ip_network(each)
    for each in (
        "0.0.0.0/8",
        "224.0.0.0/4",
        "255.255.255.255/32",
        "::/128",
        "::ffff:0:0/96",
        "ff00::/8",
    )
)
# A name that the operator allows may be of any private network; here clouds keep credentials.
_NEVER_BY_NAME: Final = (
    *_NO_HOST,
    *(ip_network(each) for each in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32")),
)

_LABEL: Final = rf"[a-z0-9_](?:[a-z0-9_-]{{0,{limits.HOST_LABEL_LENGTH_MAX - 2}}}[a-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
# The system's resolver reads a name that ends like this as an IPv4 address: 2130706433, 0x7f.1.
_NUMBER_LAST: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_IPV4: Final = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})")
_URL: Final = re.compile(r"([^:/?#]*):(?://)([^/?#]*)([^#]*)(#.*)?", re.DOTALL)
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_TARGET: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")


def is_public(address: IPAddress) -> bool:
    """Return whether an address is of the public internet, and leads nowhere else."""
    if isinstance(address, IPv4Address):
        return not any(address in each for each in _NOT_PUBLIC_4)
    if address.scope_id is not None or address not in _UNICAST_6:
        return False
    if any(address in each for each in _NOT_PUBLIC_6):
        return False
    return (int(address) >> 32) & 0xFFFF_FFFF not in _ISATAP


def read_address(text: str) -> IPAddress | None:
    """Return the address that a text is, in its usual form; other forms are no addresses."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return None
    return address


class AllowList(msgspec.Struct, frozen=True):
    """What an operator allows besides public addresses: networks and names of hosts."""

    networks: tuple[IPNetwork, ...] = ()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, entries: Iterable[str], field: str) -> "AllowList":
        """Read networks such as 10.0.0.0/8, addresses and names."""
        texts = tuple(entries)
        if len(texts) > limits.ALLOW_LIST_MAX:
            _refuse(field, f"must have at most {limits.ALLOW_LIST_MAX} entries")
        networks: list[IPNetwork] = []
        hosts: set[str] = set()
        for text in texts:
            network = _read_network(text)
            if network is not None:
                networks.append(network)
            elif "/" in text or not _is_name(text.lower()):
                _refuse(field, "must be a network such as 10.0.0.0/8, an address, or a host name")
            else:
                hosts.add(text.lower())
        return cls(tuple(networks), frozenset(hosts))

    def allows(self, host: str, address: IPAddress) -> bool:
        """Return whether the operator allows this address of this host."""
        if any(address in each for each in _NO_HOST):
            return False
        if any(address in each for each in self.networks):
            return True
        return host in self.hosts and not any(address in each for each in _NEVER_BY_NAME)


def _read_network(text: str) -> IPNetwork | None:
    try:
        return None if "%" in text else ip_network(text)
    except ValueError:
        return None


class HttpUrl(msgspec.Struct, frozen=True):
    """A URL in its parts, each in one form only."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def is_https(self) -> bool:
        """Return whether the connection has TLS."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Return host and port as the header Host has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def rule(self, allowed: AllowList) -> AddressRule:
        """Return which addresses may be connected to for this URL."""
        return lambda address: (
            allowed.allows(self.host, address) or (self.is_https and is_public(address))
        )

    def check(self, allowed: AllowList, field: str) -> "HttpUrl":
        """Refuse what is known to be refused without a look-up."""
        address = read_address(self.host)
        if address is not None and not self.rule(allowed)(address):
            _refuse(field, "must have a public address and https, or one that the server allows")
        is_known = self.host in allowed.hosts or address is not None or bool(allowed.networks)
        if not self.is_https and not is_known:
            _refuse(field, "must begin with https://")
        return self

    def __str__(self) -> str:
        """Return it as text."""
        return f"{self.scheme}://{self.authority}{self.target}"


def read_url(text: object, field: str) -> HttpUrl:
    """Read an absolute http or https URL; what parsers read differently is refused."""
    if not isinstance(text, str) or not 0 < len(text) <= limits.URL_BYTES_MAX:
        _refuse(field, f"must be a URL of at most {limits.URL_BYTES_MAX} bytes")
    parts = _URL.fullmatch(text)
    if parts is None or (scheme := parts[1].lower()) not in _DEFAULT_PORTS:
        _refuse(field, "must be a URL that begins with https://")
    if "@" in parts[2]:
        _refuse(field, "must not contain a user or a password")
    if parts[4]:
        _refuse(field, "must not contain a fragment")
    host, port = read_authority(parts[2], field)
    target = parts[3] if parts[3].startswith("/") else f"/{parts[3]}"
    if not _TARGET.fullmatch(target):
        _refuse(field, "must have a path of ASCII characters, with %XX for all others")
    return HttpUrl(scheme, host, port or _DEFAULT_PORTS[scheme], target)


def read_authority(text: str, field: str) -> tuple[str, int | None]:
    """Read ``host`` or ``host:port``; an IPv6 address is in brackets."""
    if text.startswith("["):
        return _read_ipv6_authority(text, field)
    host, colon, port = text.partition(":")
    host = host.lower()
    if not _IPV4.fullmatch(host) and not _is_name(host):
        _refuse(field, "must have a host name or an address in its usual form")
    if _IPV4.fullmatch(host) and read_address(host) is None:
        _refuse(field, "must have an IPv4 address with numbers up to 255")
    return host, _read_port(port, field) if colon else None


def _read_ipv6_authority(text: str, field: str) -> tuple[str, int | None]:
    inner, bracket, rest = text[1:].partition("]")
    address = read_address(inner)
    if not bracket or not isinstance(address, IPv6Address) or (rest and rest[0] != ":"):
        _refuse(field, "must have an IPv6 address in brackets, without a zone")
    return str(address), _read_port(rest[1:], field) if rest else None


def _is_name(host: str) -> bool:
    if not host.isascii() or len(host) > limits.HOST_LENGTH_MAX:
        return False
    return bool(_HOST.fullmatch(host)) and not _NUMBER_LAST.fullmatch(host)


def _read_port(text: str, field: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > _PORT_MAX:
        _refuse(field, f"must have a port from 1 to {_PORT_MAX}")
    return int(text)


def _refuse(field: str, problem: str) -> NoReturn:
    raise InvalidArgument(f"{field} {problem}", field=field)
