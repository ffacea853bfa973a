"""Seats, and the calls to served workers."""

from typing import Final

from tenure.core.limits.unit import SECOND_MS

# A server shows each second that it drives its seats; after five misses others may take them.
SEAT_STALE_MS: Final = 5 * SECOND_MS
SEAT_ROUND_MS: Final = 1 * SECOND_MS
# Of its seats a server gives back at most one of this many in a round: the workers that change
# their server are few at a time, and 45 of 90 seats are spread within three seconds.
SEAT_RETURN_PARTS: Final = 10
# Seats that one round takes: each is a command that locks its worker.
SEATS_TAKEN_MAX: Final = 500
# How often what a driver saw is written; nothing is decided by it.
SEAT_NOTE_MS: Final = 5 * SECOND_MS
SEAT_ERROR_BYTES_MAX: Final = 500
# A tick costs 1 ms of a core; with it a worker learns of a task at once, and is heard of in time.
SERVED_TICK_MS: Final = 5 * SECOND_MS
# Ticks vary by a tenth, so that the workers of a server that starts spread out.
SERVED_TICK_SPREAD: Final = 0.1
# A tick that comes so much later is counted: the loop of the server is too slow.
SERVED_TICK_LATE_MS: Final = 1 * SECOND_MS
# One that answers later is stuck; three of them still fit into the lease.
SERVED_CALL_MS: Final = 10 * SECOND_MS
# Calls that come early are at least this far apart: ten a second carry as much as there is.
SERVED_CALL_GAP_MS: Final = 100
# Calls of a server at a time: of workers whose last call was answered, and of the others. One that
# hangs keeps its place for ten seconds, so those have places of their own.
SERVED_PLACES_MAX: Final = 512
SERVED_FAILING_PLACES_MAX: Final = 64
# A full set that says the same as the last one is compared with the database once in so many calls.
SERVED_COMPARED_EVERY: Final = 6
# About what a task takes in a frame besides its payloads.
SERVED_TASK_BYTES: Final = 1_024
