"""Keys and the audit log."""

from typing import Final

from tenure.core.limits.unit import DAY_MS, KIB, SECOND_MS

# Every server caches all live keys, about 1 KiB each.
LIVE_KEYS_MAX: Final = 10_000
# A key with more namespaces should be a key for all of them.
KEY_NAMESPACES_MAX: Final = 100
# The precision of the last use of a key; each update is one write.
KEY_USED_MS: Final = 60 * SECOND_MS
# The expiry of a key is checked again after this: clocks may be changed.
KEY_EXPIRY_LOOK_MS: Final = 60 * SECOND_MS
# A quarter of a year: the usual period of an audit.
AUDIT_KEPT_MS: Final = 90 * DAY_MS
# One line of a table.
AUDIT_DETAIL_BYTES_MAX: Final = 1 * KIB
