"""The HTTP edge."""

from typing import Final

from tenure.core.limits.unit import DAY_MS, KIB, MIB, SECOND_MS

# Bodies in memory at once; more clients get 429 before theirs are read.
HTTP_REQUESTS_MAX: Final = 1_000
# Load balancers and scrapers have places of their own: they are answered under full load, too.
HTTP_PROBES_MAX: Final = 100
# A waiting request costs a few KiB, a stream also a read each WATCH_READ_MS.
HTTP_WAITS_MAX: Final = 2_000
HTTP_STREAMS_MAX: Final = 200
# Per key, and per address at a server without keys: the screens of a team, and a quarter of all, so
# that no single client can use all of them.
CALLER_STREAMS_MAX: Final = 50
# How old the progress that a stream shows may be.
WATCH_READ_MS: Final = 500
# Shorter than the idle timeout of common proxies; it also detects that a client is gone.
STREAM_PING_MS: Final = 15 * SECOND_MS
# Hints are written together: a write costs more than the hints in it, and nobody is in a hurry.
EVENT_GATHER_MS: Final = 20
# Hints in one write, about 250 KiB; the next write waits until the subscriber has read them.
EVENT_WRITE_MAX: Final = 1_000
# How long a subscriber waits before it reconnects.
EVENT_RETRY_MS: Final = 1 * SECOND_MS
# The id of a server and a number, with some spare room.
EVENT_ID_LENGTH_MAX: Final = 128
# Request line and headers; usually a few hundred bytes, most of it a page token in the URL.
HTTP_HEAD_BYTES_MAX: Final = 8 * KIB
# A client on a slow line sends its head in one packet; a slower one only occupies a socket.
HTTP_HEAD_MS: Final = 10 * SECOND_MS
# An idle connection is kept for a client's next request, not for an unused pool.
HTTP_IDLE_MS: Final = 30 * SECOND_MS
# A replaced certificate is found within this time; new connections check it themselves.
TLS_LOOK_MS: Final = 1 * SECOND_MS
# Time to order another certificate, and how often the expiry is logged.
TLS_EXPIRY_NEAR_MS: Final = 30 * DAY_MS
TLS_REMIND_MS: Final = 1 * DAY_MS
# The time for a client's handshake, as for the head of a request.
TLS_HANDSHAKE_MS: Final = 10 * SECOND_MS
# A certificate with its chain has 10 KiB, the authorities of an operating system 250.
TLS_FILE_BYTES_MAX: Final = 1 * MIB
# Deeper JSON is not real data, and can exceed the stack of its readers.
JSON_DEPTH_MAX: Final = 100
# A load balancer asks about once a second, and must not wait for a store that is not available.
READY_MS_MAX: Final = 900
# After a full disk: half of the largest payload must fit before the server reports that it is
# ready, and how often that is tried.
SPACE_PROBE_BYTES: Final = 1 * MIB
SPACE_PROBE_MS: Final = 1 * SECOND_MS
# How often hints are added up for a subscriber, and what a digest names: workers
# that have changed, and things that the subscriber has named.
DIGEST_MS_MIN: Final = 100
DIGEST_MS_MAX: Final = 10 * SECOND_MS
DIGEST_WORKERS_MAX: Final = 100
DIGEST_IDS_MAX: Final = 200
