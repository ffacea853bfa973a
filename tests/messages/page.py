"""The page docs/reference/messages.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.messages import client, command, declaration, server, worker, workflow
from tests.messages.mistake import MISTAKES, SECTIONS, Mistake
from tests.messages.scene import Scene

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "messages.md"
# They add their mistakes when they are loaded.
PARTS: Final = (declaration, client, workflow, worker, command, server)
HEAD: Final = """# Messages

The most common mistakes, and what Tenure says about each. The tests make every mistake for real and
write this page (`python -m tests.messages`). Ids, times, ports and folders are replaced.
"""


def row(mistake: Mistake, said: str) -> str:
    """Return a mistake and its message as a row of a table."""
    lines = [_code(line) for line in said.splitlines() if line.strip()]
    return f"| {mistake.what}: {_code(mistake.code)} | {'<br>'.join(lines)} |\n"


def _code(text: str) -> str:
    text = text.strip().replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def made(mistake: Mistake, scene: Scene) -> str:
    """Make a mistake; return its row."""
    return row(mistake, scene.shown(mistake.provoke(scene)))


def page(scene: Scene) -> str:
    """Make all mistakes; return the page."""
    parts = [HEAD]
    for section in SECTIONS:
        parts.append(f"\n## {section}\n\n| mistake | message |\n|---|---|\n")
        parts += [made(each, scene) for each in MISTAKES if each.section == section]
    return "".join(parts)
