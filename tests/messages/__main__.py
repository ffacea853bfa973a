"""Writes the page."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.messages.page import PAGE, page
from tests.messages.scene import Scene

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Scene(Path(folder)) as scene:
        PAGE.write_text(page(scene), "utf-8")
