"""The migration runner: numbered, forward only, with checksums.

A migration is ``NNNN_name.sql`` with a header that says ``kind`` (expand or contract) and
``breaking`` (yes or no). Old and new servers work together during a rollout; only a schema
that is newer and breaking is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import resources

import msgspec

from tenure.store.failure import SchemaError

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_HEADER = re.compile(r"\A-- kind: (expand|contract)\n-- breaking: (yes|no)\n")


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema."""

    number: int
    name: str
    sql: str
    is_breaking: bool

    @property
    def checksum(self) -> str:
        """Return the checksum of the file, which detects later edits."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Applied(msgspec.Struct, frozen=True):
    """An applied step, as the database has it."""

    number: int
    name: str
    checksum: str
    is_breaking: bool


def load(package: str) -> list[Migration]:
    """Read the migrations of one database in their order."""
    found = []
    for file in resources.files(package).iterdir():
        match = _FILE.match(file.name)
        if match is not None:
            text = file.read_text("utf-8")
            header = _HEADER.match(text)
            assert header is not None
            found.append(Migration(int(match[1]), match[2], text, header[2] == "yes"))
    found.sort(key=lambda each: each.number)
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    return found


def missing(known: Sequence[Migration], applied: Sequence[Applied]) -> list[Migration]:
    """Return the steps still to apply, or raise when the database does not match."""
    by_number = {each.number: each for each in known}
    for step in applied:
        ours = by_number.get(step.number)
        if ours is None:
            if step.is_breaking:
                message = (
                    f"The database has schema {step.number} ({step.name}), which this server does "
                    "not know. Start a newer server."
                )
                raise SchemaError(message)
        elif ours.checksum != step.checksum:
            message = (
                f"Migration {step.number} ({step.name}) was changed after it was applied. "
                "Restore the file as it was released."
            )
            raise SchemaError(message)
    done = {step.number for step in applied}
    return [each for each in known if each.number not in done]
