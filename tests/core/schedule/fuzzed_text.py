"""Texts that are rules, were rules once, or never were."""

from __future__ import annotations

import random
from typing import Final

from tests.core.schedule import random_rule

_ALPHABET: Final = (
    "0123456789 *?/,-#@LWHlw\t\n.+\\\"'()[]:;=~%&_\0\u0660\u00df\u0131\U0001f600\ud800"
)
_NUDGES: Final = "00112233456789*,-/L#"
_PARTS: Final = (
    *("*", "?", "*/", "/0", "-", ",", "#", "L", "LW", "5L", "FRIL", "MON#2", "MON#9", "15W"),
    *("L-3", "H", "@", "@daily", "@reboot", "@every 1s", "CRON_TZ=UTC ", "TZ=", "JAN", "SUN"),
    *("0", "59", "60", "2100", "1970-2099", "99999999999999999999", "0-59/7", " ", "\t", "  "),
)


class Corpus:
    """Makes texts from a source of randomness."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def text(self) -> str:
        """Return the next text."""
        makers = (self._nudged, self._nudged, self._mutated, self._joined, self._random)
        return self._rng.choice(makers)()

    def _nudged(self) -> str:
        """Return a rule with one character that is another of a rule: it may still be one."""
        text = random_rule.make(self._rng).text
        at = self._rng.randrange(len(text))
        return text[:at] + self._rng.choice(_NUDGES) + text[at + 1 :]

    def _mutated(self) -> str:
        text = random_rule.make(self._rng).text
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            at = self._rng.randint(0, len(text))
            cut = self._rng.choice((0, 0, 1, 3))
            text = text[:at] + self._part() + text[at + cut :]
        return text

    def _part(self) -> str:
        return self._rng.choice((self._rng.choice(_ALPHABET), self._rng.choice(_PARTS)))

    def _joined(self) -> str:
        count = self._rng.randint(0, 30)
        return "".join(self._part() for _ in range(count))

    def _random(self) -> str:
        length = self._rng.choice((0, 1, 5, 20, 511, 512, 513, 5_000))
        return "".join(self._rng.choice(_ALPHABET) for _ in range(length))
