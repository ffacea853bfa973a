"""``python -m tenure.cli`` is ``tenure``."""

from __future__ import annotations

from tenure.cli.main import main

if __name__ == "__main__":
    main()
