"""Schedules: their rules and zones."""

from typing import Final

from tenure.core.limits.unit import SECOND_MS

# A rule with every second, minute and hour listed has about 450 characters.
RULE_BYTES_MAX: Final = 512
# The longest name of a time zone has 32.
ZONE_BYTES_MAX: Final = 64
INTERVAL_MS_MIN: Final = 1 * SECOND_MS
# Local years that a rule may name. Ticks end with the last one in UTC: 2100-01-01T00:00:00Z.
RULE_YEAR_MIN: Final = 1970
RULE_YEAR_MAX: Final = 2099
TICKS_END_MS: Final = 4_102_444_800_000
# Parsed rules, about 1 KiB each, and years of zones, about 0.5 KiB each.
RULES_REMEMBERED_MAX: Final = 10_000
INSTANTS_REMEMBERED_MAX: Final = 1_024
ZONE_YEARS_REMEMBERED_MAX: Final = 4_096
# Ticks are counted exactly up to this number; then "at least" is said.
TICKS_COUNTED_MAX: Final = 10_000
PREVIEW_FIRES_MAX: Final = 100
