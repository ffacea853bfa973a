"""The tables of schedules: what is read is what was written, and the hot statements use indexes."""

from __future__ import annotations

import asyncio
