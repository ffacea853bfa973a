"""The fields of a cron rule as sets of numbers: bit N of a mask is set if N matches."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

import msgspec

from tenure.core.limits import RULE_YEAR_MAX, RULE_YEAR_MIN
from tenure.errors import InvalidArgument

# fmt: off
MONTH_NAMES: Final = (
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
)
# fmt: on
WEEKDAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

# Bits of the day of month that are no number: the last day, and the last from Monday to Friday.
LAST_DAY: Final = 32
LAST_WORKDAY: Final = 33
# The day of week has rows of seven bits: each such day, the first to the fifth of a month, and the
# last.
WEEK: Final = 7
NTH_MAX: Final = 5
LAST_ROW: Final = NTH_MAX + 1

_ITEM: Final = re.compile(
    r"([*?]|[0-9]{1,4}|[A-Z]{3})(?:-([0-9]{1,4}|[A-Z]{3}))?(?:/([0-9]{1,4}))?"
)
_LAST_WEEKDAY: Final = re.compile(r"([0-9]|[A-Z]{3})L")
_NTH_WEEKDAY: Final = re.compile(r"([0-9]|[A-Z]{3})#([0-9])")
_STARS: Final = ("*", "?")


class FieldSpec(NamedTuple):
    """What a field of a rule may hold; ``top`` is the last value that ``*`` stands for."""

    name: str
    low: int
    high: int
    top: int
    allowed: str
    names: tuple[str, ...] = ()

    def value_of(self, word: str) -> int | None:
        """Return the number that a word stands for, if it is one of this field."""
        if word in self.names:
            return self.names.index(word) + self.low
        if word.isdigit() and self.low <= int(word) <= self.high:
            return int(word)
        return None


_FORMS: Final = "a list (1,2), a range (1-5), a step (*/2)"
SECOND: Final = FieldSpec("second", 0, 59, 59, f"0-59, *, {_FORMS}")
MINUTE: Final = FieldSpec("minute", 0, 59, 59, f"0-59, *, {_FORMS}")
HOUR: Final = FieldSpec("hour", 0, 23, 23, f"0-23, *, {_FORMS}")
DAY: Final = FieldSpec(
    "day of month", 1, 31, 31, f"1-31, *, ?, L for the last day, LW for the last workday, {_FORMS}"
)
MONTH: Final = FieldSpec("month", 1, 12, 12, f"1-12, JAN-DEC, *, {_FORMS}", MONTH_NAMES)
WEEKDAY: Final = FieldSpec(
    "day of week",
    0,
    7,
    6,
    f"0-7 with Sunday 0 and 7, SUN-SAT, *, ?, 5L or FRIL for the last one, MON#2, {_FORMS}",
    WEEKDAY_NAMES,
)
YEAR: Final = FieldSpec(
    "year",
    RULE_YEAR_MIN,
    RULE_YEAR_MAX,
    RULE_YEAR_MAX,
    f"{RULE_YEAR_MIN}-{RULE_YEAR_MAX}, *, {_FORMS}",
)


class Field(msgspec.Struct, frozen=True, gc=False):
    """A field that was read: what matches, and whether it is ``*``."""

    mask: int
    is_star: bool = False


class Place(NamedTuple):
    """Where in a rule something is: the field, and the character, counted from 1."""

    spec: FieldSpec
    character: int

    def refuse(self, problem: str = "") -> NoReturn:
        """Refuse the rule with what is allowed here, and never with what was there."""
        reason = problem or f"allowed are {self.spec.allowed}"
        raise InvalidArgument(
            f"rule is invalid in its {self.spec.name}, at character {self.character}: {reason}",
            field="rule",
        )


def read_field(spec: FieldSpec, text: str, character: int) -> Field:
    """Read one field, in upper case, that begins at this character of its rule."""
    mask = 0
    is_star = False
    for item in text.split(","):
        read = _item(Place(spec, character), item)
        mask |= read.mask
        is_star |= read.is_star
        character += len(item) + 1
    return Field(mask, is_star)


def _item(place: Place, text: str) -> Field:
    special = _special(place, text)
    if special is not None:
        return Field(1 << special)
    form = _ITEM.fullmatch(text)
    if form is None:
        place.refuse()
    first, last, step_text = form.groups()
    step = _step(place, step_text)
    if first in _STARS:
        if last is not None:
            place.refuse()
        return Field(_mask(place.spec, place.spec.low, place.spec.top, step), is_star=step == 1)
    low = _value(place, first)
    if last is not None:
        high = _value(place, last)
    else:
        high = low if step_text is None else max(low, place.spec.top)
    if high < low:
        place.refuse(_backwards(place.spec))
    return Field(_mask(place.spec, low, high, step))


def _special(place: Place, text: str) -> int | None:
    """Return the bit of ``L``, ``LW``, ``5L`` or ``MON#2``."""
    if place.spec is DAY:
        return {"L": LAST_DAY, "LW": LAST_WORKDAY}.get(text)
    if place.spec is not WEEKDAY:
        return None
    if form := _LAST_WEEKDAY.fullmatch(text):
        return LAST_ROW * WEEK + _value(place, form[1]) % WEEK
    if form := _NTH_WEEKDAY.fullmatch(text):
        nth = int(form[2])
        if not 1 <= nth <= NTH_MAX:
            place.refuse(f"behind # a number from 1 to {NTH_MAX} is allowed")
        return nth * WEEK + _value(place, form[1]) % WEEK
    return None


def _value(place: Place, word: str) -> int:
    value = place.spec.value_of(word)
    if value is None:
        place.refuse()
    return value


def _step(place: Place, text: str | None) -> int:
    most = place.spec.top - place.spec.low + 1
    step = 1 if text is None else int(text)
    if not 1 <= step <= most:
        place.refuse(f"a step from 1 to {most} is allowed")
    return step


def _backwards(spec: FieldSpec) -> str:
    if spec is WEEKDAY:
        return "a range must not run backwards; write FRI,SAT,SUN,MON or 5-7,1"
    return "a range must not run backwards; write two ranges"


def _mask(spec: FieldSpec, low: int, high: int, step: int) -> int:
    mask = 0
    for value in range(low, high + 1, step):
        # Only the 7 of Sunday is above the top; it becomes 0.
        mask |= 1 << value % (spec.top + 1)
    return mask
