"""The statements of the floor, read from the SQL files beside this one."""

import re
from pathlib import Path


def read_statements(file_name: str) -> dict[str, str]:
    """Return the statements of a file by the names in their ``-- name:`` lines."""
    text = Path(__file__).with_name(file_name).read_text()
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))
