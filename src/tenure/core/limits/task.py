"""Tasks and attempts."""

from typing import Final

from tenure.core.limits.unit import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

# Four session heartbeats: a confirmation that has not arrived by then will not arrive.
DELIVERY_TIMEOUT_MS: Final = 20 * SECOND_MS
DELIVERY_TIMEOUT_MAX_MS: Final = 120 * SECOND_MS
# Time for clean-up after the first answer or push that carried the cancel signal.
CANCEL_GRACE_MS: Final = 30 * SECOND_MS
# Lost workers and lost tasks are not the task's fault, but they cannot continue for ever.
INTERRUPTIONS_MAX: Final = 100
# From this many losses in a row a task is suspected of crashing its workers.
LOSSES_BEFORE_GUARD: Final = 2
# Doubles with each loss of a suspect: time for a worker to restart, and a result within seconds.
GUARD_BACKOFF_MIN_MS: Final = 1 * SECOND_MS
GUARD_BACKOFF_MAX_MS: Final = 16 * SECOND_MS
# The fifth counted loss of a suspect without others is evidence that it crashes its worker.
POISON_LOSSES_MAX: Final = 5
# A loss counts only if chance is unlikely: at the rate of losses in the window, the other workers
# of the queue would have been lost less than this often in the time that the suspect was held.
CONTROL_WINDOW_MS: Final = 60 * SECOND_MS
CONTROL_DEATHS_MAX: Final = 0.1
# From this many losses in a row without other suspects, a suspect explains the loss of its worker,
# and this loss is not counted as chance. So several such tasks cannot hide each other.
LOSSES_THAT_EXPLAIN: Final = 3
# Workers that ended last, among which those of a queue are counted; and live ones of a queue.
CONTROL_SEEN_MAX: Final = 1_000
# Suspects that one claim reads: more than one group of them, and their inputs are loaded.
SUSPECTS_CLAIMED_MAX: Final = 100
# Unconfirmed hand-outs in a row, before the task waits and prefers another worker.
UNDELIVERED_BEFORE_BACKOFF: Final = 3
UNDELIVERED_BACKOFF_MIN_MS: Final = 1 * SECOND_MS
UNDELIVERED_BACKOFF_MAX_MS: Final = 60 * SECOND_MS

# A maximum interval of 0 means this many initial intervals.
RETRY_INTERVALS_MAX: Final = 100
# An enqueue whose id was created at most this long ago (or ahead: clocks differ) is not looked up:
# most enqueues arrive within milliseconds, and synchronised clocks differ by less.
ENQUEUE_YOUNG_MS: Final = 1 * SECOND_MS
# How wrong the estimate of the store's time may be that is used before the time is read.
YOUNG_MARGIN_MS: Final = 250
# For this long after it was read the store's time is known well enough for writes: two synchronised
# clocks drift apart by less than a millisecond.
STORE_TIME_KEPT_MS: Final = 10 * SECOND_MS
# After a claim that found more than one task, claims are batches for this long: there is work.
CROWDED_MS: Final = 1 * SECOND_MS
# The only task of a line is cached with its input, if that is not larger than this.
SOLE_BYTES_MAX: Final = 16 * 1024
# Workers that a server caches for single writes; enough for all workers at one server.
RECEIVERS_KEPT_MAX: Final = 10_000
# A task that was not looked up is stored within this time after the decision, or decided again.
ENQUEUE_STORED_MS: Final = 500
# A marked enqueue whose task is unknown is accepted once the first request can only be looked up:
# it is not recent, it was stored in time, plus half a second for a clock that was set back.
ENQUEUE_DECIDED_MS: Final = ENQUEUE_YOUNG_MS + ENQUEUE_STORED_MS + 500
# Ids from further ahead come from a wrong clock; a marked enqueue does not wait for them.
ENQUEUE_AHEAD_MS: Final = 10 * SECOND_MS
# After the store's clock was set back, enqueues are looked up until it has caught up, but not for
# longer: no request stays in a socket for a minute while its client repeats it.
CLOCK_SET_BACK_MS_MAX: Final = 1 * MINUTE_MS
# A week of history answers most questions; PostgreSQL drops it by the day.
HISTORY_KEPT_MS: Final = 7 * DAY_MS
# No client should retry for longer than a day.
KEY_KEPT_MS: Final = 24 * HOUR_MS
# The task is completed from outside: the approval of a person may take weeks.
COMPLETION_TOKEN_MS: Final = 30 * DAY_MS
# A namespace of two names, two ids and some numbers, as base64.
TASK_TOKEN_LENGTH_MAX: Final = 1024
