"""What a server accepts: rates, streams, strangers, overload."""

from typing import Final

from tenure.core.limits.unit import KIB, MIB, SECOND_MS

# A crash loop of all workers must not delay work; heartbeats have a lane of their own.
REGISTRATIONS_PER_S: Final = 500
# No rate: only the operator knows the share of a namespace; overload is refused by waiting time.
ENQUEUES_PER_S: Final = 0
# Ten screens of twenty people that refresh each second; readers share few connections.
LISTS_PER_S: Final = 200
# A worker sends a heartbeat every few seconds, and at once after a mismatch or a new session. More
# are refused before they reach the heartbeat lane, so that no other worker loses its lease.
BEATS_PER_S: Final = 10
BEATS_BURST_S: Final = 5
# Namespaces or workers whose rates are stored, about 200 bytes each.
BUCKETS_MAX: Final = 20_000
# Per namespace, so that others have room; about 60 KiB for a session or a poll.
SESSIONS_MAX: Final = 20_000
POLLS_MAX: Final = 10_000
WAITS_MAX: Final = 1_000
# A refused caller tries again after some time: sessions and polls last long.
CROWD_RETRY_MS: Final = 5 * SECOND_MS
# Streams of one gRPC connection, which delay the others. A worker or a client has one, and calls.
CONNECTION_STREAMS_MAX: Final = 256
# Bytes of a stream that gRPC buffers before they are read; larger messages take another round trip.
STREAM_WINDOW_BYTES: Final = 32 * KIB
# Calls that gRPC has not delivered yet, because the loop is late; gRPC refuses more by itself.
PENDING_CALLS_MAX: Final = 1_000
# The time for a message or a body to arrive: 4 MiB over 4.2 Mbit/s. A late loop ends it in 10 s.
MESSAGE_MS: Final = 8 * SECOND_MS
# Messages of callers without a key that are read at a time, and calls that wait for that. With the
# windows of these and of pending calls that is 61 MiB. A complete message is read in 1 ms.
STRANGER_MESSAGES_MAX: Final = 5
STRANGER_CALLS_MAX: Final = 320
# While others wait, one of them has this long: 4 MiB over 134 Mbit/s.
STRANGER_MESSAGE_MS: Final = 250
# One client holds at most this many times as many places as are free: the first half of them, the
# next one half of the rest. Ten such clients fill 1,000 places.
CLIENT_SHARE: Final = 1
# Addresses whose network was computed; about 200 bytes each.
ADDRESSES_REMEMBERED_MAX: Final = 4_096

# Overload: when new work is refused. A wait that a user just does not notice.
OVERLOAD_WAIT_MS: Final = 100
# Requests with new work that are open at a time. The limit grows by a twentieth while they take
# less than half of that wait, and shrinks by a tenth when they take longer. It starts with a
# usual burst at the start of an hour, and an idle server is back there within three seconds.
NEW_WORK_OPEN_START: Final = 400
ROOM_GROWS: Final = 1.05
ROOM_SHRINKS: Final = 0.9
# The rest of HTTP_REQUESTS_MAX is for reports.
NEW_WORK_OPEN_MAX: Final = 800
# With fewer requests something else delays the server, and refusing does not help.
NEW_WORK_OPEN_MIN: Final = 32
# When work has waited longer than that, one of this many is accepted; above twice the wait one of
# its square; and none when it takes four times as long.
OVERLOAD_ADMITTED_OF: Final = 4
# This many open gRPC calls are read in turns: after each 30 ms reading pauses until no call has
# arrived for 3 ms, at most for 100 ms. Other calls arrive meanwhile. On PostgreSQL at three times
# the capacity they waited for 2 s before they were refused; now they wait for 30 ms.
CROWD_MIN: Final = 16
READING_MS: Final = 30
READING_PAUSE_MS: Final = 100
QUIET_NAP_MS: Final = 1
QUIET_NAPS: Final = 3
# How often the lag of the loop and the wait in gRPC are measured: 0.125 % of a core.
OVERLOAD_TICK_MS: Final = 50
# Time for the load to decrease.
OVERLOAD_RETRY_MS: Final = 1 * SECOND_MS
# One line for all calls that were refused since the last one.
OVERLOAD_LOG_MS: Final = 1 * SECOND_MS
# The time that a stopping server gives open requests and streams, below the usual grace of 10 s.
SHUTDOWN_MS: Final = 8 * SECOND_MS
# A call is answered within this time; a caller that waits longer calls again.
CALL_MS: Final = 30 * SECOND_MS
# A frame stays below gRPC's own message limit, with room for the rest of the frame.
FRAME_BYTES: Final = 1 * MIB
# A message that nobody waits for may wait this long to be written with another one: the answer to
# an enqueue whose result is wanted, and acknowledgements, as long as they are few.
LULL_MS: Final = 10
LULL_ACKS_MAX: Final = 16
# Reports of one session that wait for their commit; beyond this, its frames are not read.
SESSION_REPORTS_MAX: Final = 20_000
# A session whose worker reads nothing for this long is closed; then its lease decides.
SLOW_READER_MS: Final = 30 * SECOND_MS
# Ids that one WatchTasks stream may wait for at a time.
WATCHED_MAX: Final = 10_000
# Enqueues that one such stream may have open; more of them wait to be read.
STREAM_ENQUEUES_MAX: Final = 16

# Calls without a valid key: of each address one is logged within this time. This many addresses are
# distinguished, and the others count as one: at most 101 lines a second are written.
REFUSAL_LOG_MS: Final = 1 * SECOND_MS
REFUSAL_ADDRESSES_MAX: Final = 100

# How often a server checks whether it has file descriptors left, and how many successful checks in
# a row mean that it has again: near the limit the result changes often.
DESCRIPTOR_LOOK_MS: Final = 1 * SECOND_MS
DESCRIPTOR_LOOKS: Final = 3
