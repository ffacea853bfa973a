"""Where a served worker listens, and which hosts that may be."""

import msgspec

from tenure.core import limits
from tenure.core.address import AddressRule, AllowList, read_address, read_authority
from tenure.errors import InvalidArgument


class ServedPlace(msgspec.Struct, frozen=True):
    """Host and port of a served worker, as it registered them."""

    host: str
    port: int

    def rule(self, caller: str, allowed: AllowList) -> AddressRule:
        """Return which addresses may be connected to: that of the caller, and allowed ones."""
        own = read_address(caller)
        return lambda address: address == own or allowed.allows(self.host, address)


def read_place(text: object) -> ServedPlace:
    """Read ``host:port``; an IPv6 address is in brackets."""
    if not isinstance(text, str) or not text:
        message = "address must be host:port, where the worker listens"
        raise InvalidArgument(message, field="address")
    if len(text) > limits.TEXT_BYTES_MAX:
        message = f"address must have at most {limits.TEXT_BYTES_MAX} bytes"
        raise InvalidArgument(message, field="address")
    host, port = read_authority(text, "address")
    if port is None:
        raise InvalidArgument("address must have a port, such as worker-1:7310", field="address")
    return ServedPlace(host, port)
