"""What a server dials: endpoints and served workers."""

from typing import Final

from tenure.core.limits.unit import HOUR_MS, KIB, MINUTE_MS, SECOND_MS

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
# The times of an endpoint's attempts, by the worker contract; the timeout is at least twice the
# interval.
CALLBACK_HEARTBEAT_INTERVAL_MS: Final = 30 * SECOND_MS
CALLBACK_HEARTBEAT_TIMEOUT_MS: Final = 90 * SECOND_MS
# From the acceptance of an envelope to its first callback: a container may have to start first.
CALLBACK_DELIVERY_TIMEOUT_MS: Final = 90 * SECOND_MS
# By the worker contract.
CALLBACK_TOKEN_MS: Final = 3_600 * SECOND_MS
CALLBACK_TOKEN_MS_MAX: Final = 7_200 * SECOND_MS
# A heartbeat fetches a fresh token from half of the life on: so many attempts fit into a life.
CALLBACK_BEATS_PER_TOKEN: Final = 4
# Of one attempt: heartbeats, each repeated some times.
CALLBACKS_PER_S: Final = 10
CALLBACKS_BURST_S: Final = 5
# Measurements of one attempt, not a time series.
CALLBACK_METRICS_MAX: Final = 64
# What a cancelled attempt has got done: a checkpoint, not the data.
PARTIAL_PROGRESS_BYTES_MAX: Final = 64 * KIB
# How far the clocks of servers of one database may differ.
TOKEN_SKEW_MS: Final = 60 * SECOND_MS
# Servers have read a new key of tokens by then, or read it when they see its number.
TOKEN_KEY_AGE_MS: Final = 10 * SECOND_MS
# A key has one byte for its number: 20 years of monthly rotations.
TOKEN_KEYS_MAX: Final = 255
TOKEN_KEY_BYTES: Final = 32
# Headers of the operator that are sent along, such as an authorization.
ENDPOINT_HEADERS_MAX: Final = 20
ENDPOINT_HEADER_BYTES_MAX: Final = 4 * KIB
# Attempts that an endpoint has at a time.
ENDPOINT_CONCURRENCY_DEFAULT: Final = 10
# A POST is answered when the work is accepted, or when it is done if the function works meanwhile.
ENDPOINT_TIMEOUT_MS: Final = 10 * SECOND_MS
ENDPOINT_TIMEOUT_MS_MIN: Final = 1 * SECOND_MS
ENDPOINT_TIMEOUT_MS_MAX: Final = 15 * MINUTE_MS
CALLBACK_DELIVERY_TIMEOUT_MS_MAX: Final = 1 * HOUR_MS
# Below this, a token would end between two heartbeats.
CALLBACK_TOKEN_MS_MIN: Final = 1 * SECOND_MS
# 256 bits; after a rotation both secrets sign, until receivers know the new one.
ENDPOINT_SECRET_BYTES: Final = 32
ENDPOINT_SECRET_OVERLAP_MS: Final = 24 * HOUR_MS
# The answer to a POST says little; what is longer is not read.
ENDPOINT_REPLY_BYTES_MAX: Final = 64 * KIB
# An endpoint that fails so often in a row is left alone for a second, then twice as long each time.
ENDPOINT_FAILURES_MAX: Final = 5
ENDPOINT_HOLD_MS: Final = 1 * SECOND_MS
ENDPOINT_HOLD_MS_MAX: Final = 60 * SECOND_MS
# When a busy endpoint does not say how long it is busy, and the longest time that it may say.
ENDPOINT_BUSY_MS: Final = 5 * SECOND_MS
ENDPOINT_BUSY_MS_MAX: Final = 1 * HOUR_MS
# Of a failed delivery, for operators.
ENDPOINT_ERROR_BYTES_MAX: Final = 500
# Endpoints that one round of a second removes.
ENDPOINTS_REMOVED_MAX: Final = 50
# Endpoints of a namespace among which an explanation looks; each is a small row.
ENDPOINTS_EXPLAINED_MAX: Final = 200
