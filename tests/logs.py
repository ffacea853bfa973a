"""Logging is one for the whole process: what a test changes of it must not reach the next one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def logging_left_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raises = root.handlers, root.level, logging.raiseExceptions
    config = structlog.get_config()
    yield
    root.handlers, logging.raiseExceptions = handlers, raises
    root.setLevel(level)
    for name in ("asyncio", "asyncpg", "grpc", "uvicorn"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.configure(**config)
