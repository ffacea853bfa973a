"""Sizes and ranges of what users send."""

from typing import Final

from tenure.core.limits.unit import DAY_MS, KIB, MIB

# Sizes of user input.

# A database row is not made for files; above this, users store the data and send a reference.
PAYLOAD_BYTES_MAX: Final = 2 * MIB
# One payload as base64 (2.7 MiB) with the rest of its request; also gRPC's own default.
REQUEST_BYTES_MAX: Final = 4 * MIB
# Fits an index entry of both databases and a file name.
NAME_LENGTH_MAX: Final = 255
# Labels are for finding things; more would be data, which belongs in the input.
LABELS_MAX: Final = 64
LABEL_BYTES_MAX: Final = 256
# Short free text, such as an idempotency key: fits an index entry of both databases.
TEXT_BYTES_MAX: Final = 1 * KIB
# Shown in lists and logs; in a longer message the beginning is hard to find.
ERROR_MESSAGE_BYTES_MAX: Final = 16 * KIB
# About a thousand frames, as deep as Python's recursion limit.
STACK_TRACE_BYTES_MAX: Final = 64 * KIB
# Holds a position of 750 bytes: two names and an id. It is part of a URL.
PAGE_TOKEN_LENGTH_MAX: Final = 1024

# Ranges of numbers.

# 0 is first and 9 is last; each level costs the claim an index probe.
PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 9
PRIORITY_DEFAULT: Final = 5
# A 32-bit integer column and proto field.
ATTEMPT_MAX: Final = 2**31 - 1
# Ten years, each counted as a leap year. A longer duration is probably a wrong unit.
DURATION_MS_MAX: Final = 10 * 366 * DAY_MS
# 9999-12-31T23:59:59.999Z, the last instant that RFC 3339 and Python can write.
INSTANT_MS_MAX: Final = 253_402_300_799_999
# Every useful value is below 10; the limit keeps the arithmetic in range.
BACKOFF_COEFFICIENT_MAX: Final = 1_000.0
# Users with more types should use a category. The list is stored with each task.
NON_RETRYABLE_TYPES_MAX: Final = 100
