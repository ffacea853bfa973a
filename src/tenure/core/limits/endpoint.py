"""What a server dials: endpoints and served workers."""

from typing import Final

from tenure.core.limits.unit import KIB, SECOND_MS

# Longer URLs are refused by common proxies.
URL_BYTES_MAX: Final = 2 * KIB
# By the DNS: of a whole name, and of each part between dots.
HOST_LENGTH_MAX: Final = 253
HOST_LABEL_LENGTH_MAX: Final = 63
# One entry for each network or service of the operator.
ALLOW_LIST_MAX: Final = 100
# A name with more addresses has the rest for other clients.
DIAL_ADDRESSES_MAX: Final = 8
# Names that are looked up at once: the system's resolver occupies a thread while it waits.
DIAL_LOOKUPS_MAX: Final = 8
# Read ahead from a connection; replies are short.
DIAL_BUFFER_BYTES: Final = 64 * KIB
# A resolver that answers later than this is not available.
DIAL_LOOKUP_MS: Final = 5 * SECOND_MS
# Until the connection stands, with its TLS handshake: two lost packets are sent again.
DIAL_CONNECT_MS: Final = 10 * SECOND_MS
