"""Workflow runs: journals, steps, children and signals."""

from typing import Final

from tenure.core.limits.unit import HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS

# Entries and bytes of one journal: from when on it is worth a warning, and from when on its run is
# parked. A re-run reads them all, 50,000 in about half a second. The server's own entries may be as
# many again.
JOURNAL_ENTRIES_WARNING: Final = 10_000
JOURNAL_BYTES_WARNING: Final = 16 * MIB
JOURNAL_ENTRIES_MAX: Final = 50_000
JOURNAL_BYTES_MAX: Final = 64 * MIB
# A full journal has room when its run begins anew, which is up to its code.
JOURNAL_RETRY_MS: Final = 1 * MINUTE_MS
# What is handed out with a run; whoever needs more asks for it.
JOURNAL_PAGE_ENTRIES_MAX: Final = 1_000
JOURNAL_PAGE_BYTES_MAX: Final = 256 * KIB
# Pages that are read at once: after a reconnect a worker asks for the tail of each run it holds.
JOURNAL_REQUESTS_MAX: Final = 500
# Signals that nobody has taken, and that a run names when it begins anew.
KEPT_SIGNALS_MAX: Final = 50_000
# Entries that one report may have, and reports of one command: a frame has at most 1 MiB.
STEP_ENTRIES_MAX: Final = 1_000
# Children: of one report, open ones of a run, items of a map, runs above a run, and how many are
# closed by one transaction.
SPAWN_CHILDREN_MAX: Final = 1_000
OPEN_CHILDREN_MAX: Final = 20_000
GROUP_ITEMS_MAX: Final = 100_000
RUN_DEPTH_MAX: Final = 100
CLOSED_CHILDREN_MAX: Final = 500
EXTERNAL_ID_BYTES_MAX: Final = 255
# Open children of one page.
OPEN_PAGE_MAX: Final = 1_000
# Scope, name and ordinal of a call, and a few bytes more of the timer of a step that is tried
# again; where in the source it is; and what waits for a signal.
STEP_KEY_BYTES_MAX: Final = 512
WAKE_KEY_BYTES_MAX: Final = STEP_KEY_BYTES_MAX + 16
STEP_SITE_BYTES_MAX: Final = 512
SIGNAL_BYTES_MAX: Final = 256 * KIB
# A failed step that is tried again within this time keeps its slot; a later one is worth a re-run.
STEP_WAIT_HERE_MS: Final = 5 * SECOND_MS
# Calls for steps of one run that somebody else overtook, before the caller has to try again.
STEP_CALL_TURNS: Final = 20
# What a run publishes of itself: it is written with the row, and read by whoever looks at the run.
RUN_STATE_BYTES_MAX: Final = 64 * KIB
# Signals that come with the start of a run.
START_SIGNALS_MAX: Final = 100
# What is shown of what a run waits for.
WAITS_SHOWN_MAX: Final = 20
WAIT_TEXT_BYTES_MAX: Final = 512
# Runs that wait and stay in the memory of their worker; one takes some tens of KiB.
WARM_RUNS: Final = 1_000
WARM_RUNS_MAX: Final = 100_000
# So many of them keep the thread of a plain body; the others run again from their journals.
WARM_THREADS: Final = 100
# Waiting runs of which a server knows the queue: the batch that wakes one hands it out. About 300
# bytes each.
WAITING_RUNS_MAX: Final = 20_000
# A run whose code does not fit its journal is tried again, twice as late each time.
PARK_MIN_MS: Final = 1 * MINUTE_MS
PARK_MAX_MS: Final = 1 * HOUR_MS
