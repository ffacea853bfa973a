"""Ctrl-C as one kind of end, wherever in the code it strikes."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn, Self


class Interrupt:
    """Remembers inside a ``with`` block that the user pressed Ctrl-C.

    The exception strikes between any two steps, also inside the locks of the standard library,
    where another error may take its place.
    """

    def __init__(self) -> None:
        """Listen from the ``with`` block on."""
        self.has_struck = False
        self._is_ours = False

    def __enter__(self) -> Self:
        """Listen, unless somebody else does or the signal is ignored."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, self._strike)
            except ValueError:
                # Only the main thread is told of signals.
                return self
            self._is_ours = True
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more."""
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _strike(self, number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        self.has_struck = True
        raise KeyboardInterrupt
