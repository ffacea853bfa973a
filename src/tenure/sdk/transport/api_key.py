"""The API key of a client or a worker: a text, or a file that may get a new one at any time."""

from __future__ import annotations

import logging
import math
import os
import time
from pathlib import Path
from typing import Final

log = logging.getLogger("tenure.sdk")

_VARIABLE: Final = "TENURE_API_KEY"
_FILE_VARIABLE: Final = "TENURE_API_KEY_FILE"
# How often a file is checked for a new key.
_LOOK_SECONDS: Final = 1.0
# A key has 64 characters; a longer file is something else.
_LENGTH_MAX: Final = 1_024

Metadata = tuple[tuple[str, str], ...]


def find_api_key(given: str | Path | None) -> str:
    """Return the API key to send now, or nothing; None is that of the environment, if it has one.

    A ``ValueError`` says that a text cannot be a key or a file cannot be read, and never what the
    text is.
    """
    if given is None:
        given = _in_environment()
    return _checked(_read(given) if isinstance(given, Path) else given)


def _in_environment() -> str | Path:
    text = os.environ.get(_VARIABLE, "")
    file = os.environ.get(_FILE_VARIABLE, "")
    return Path(file) if file and not text else text


def _read(path: Path) -> str:
    try:
        with path.open("r", encoding="ascii") as file:
            return file.read(_LENGTH_MAX)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise ValueError(f"The API key cannot be read from {path}: {why}.") from None


def _checked(text: str) -> str:
    key = text.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("The API key is malformed. A key looks like tnr_ID_SECRET.")
    return key


class ApiKeySource:
    """What is sent with each call. A key in a file is replaced by writing another one into it."""

    def __init__(self, given: str | Path | None) -> None:
        """Take a key, the path of its file, or None for what the environment says."""
        if given is None:
            given = _in_environment()
        self.text = find_api_key(given)
        # Raised with each new key, so that whoever has opened something knows that it is old.
        self.number = 0
        self._path = given if isinstance(given, Path) else None
        self._stamp = _stamp(self._path)
        self._looked_at_s = time.monotonic()
        self._metadata = _metadata(self.text)
        self._is_told = False

    @property
    def metadata(self) -> Metadata | None:
        """What says who calls; a file is looked at first."""
        if self._path is not None and time.monotonic() - self._looked_at_s >= _LOOK_SECONDS:
            self.look()
        return self._metadata

    def look_again(self) -> None:
        """Look at the file with the next call: the key was refused, and there may be a new one."""
        self._looked_at_s = -math.inf

    def look(self) -> int:
        """Look at the file if it is time, and return the number of the key."""
        now_s = time.monotonic()
        if self._path is None or now_s - self._looked_at_s < _LOOK_SECONDS:
            return self.number
        self._looked_at_s = now_s
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._take(self._path, stamp)
        return self.number

    def _take(self, path: Path, stamp: tuple[int, ...] | None) -> None:
        try:
            text = find_api_key(path)
        except ValueError as error:
            text = ""
            why = str(error)
        else:
            why = f"{path} is empty."
        if not text:
            # The file is being replaced, or has a mistake: the old key is still used.
            if not self._is_told:
                self._is_told = True
                log.warning("%s The previous API key is still used.", why)
            return
        self._is_told = False
        self._stamp = stamp
        if text != self.text:
            self.text = text
            self.number += 1
            self._metadata = _metadata(text)
            log.info("A new API key was read from %s.", path)


def _metadata(key: str) -> Metadata | None:
    return (("authorization", f"Bearer {key}"),) if key else None


def _stamp(path: Path | None) -> tuple[int, ...] | None:
    """Return what changes with a file, or None if there is none."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
