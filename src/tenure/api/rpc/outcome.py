"""The result of a call: its answer, or the typed error for its caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import structlog

from tenure.api.guard.access import note_refusal
from tenure.engine.store_outage import is_outage
from tenure.errors import DeadlineExceeded, TenureError, Unavailable

log = structlog.get_logger("tenure.api")

Count = Callable[[str, str, str, float], None]
"""(edge, method, code, seconds)"""
Answer = TypeVar("Answer")


async def outcome(
    answer: Callable[[], Awaitable[Answer]], method: str, count: Count
) -> Answer | TenureError:
    """Wait for an answer, and count the result."""
    started = time.perf_counter()
    code = "cancelled"
    failure: TenureError
    try:
        answered = await answer()
    except TenureError as refusal:
        # Its traceback holds this frame, and this frame would hold it and the request, until the
        # collector comes by. So would the group that it came in.
        failure = refusal.with_traceback(None)
        failure.__context__ = None
        code = failure.code
    except TimeoutError:
        failure = DeadlineExceeded()
        code = failure.code
    except grpc.aio.InternalError:
        # Something could not be written: the client is gone, and there is nobody to answer.
        raise asyncio.CancelledError from None
    except Exception:
        log.exception("rpc.failed", method=method)
        message = "The server failed to answer. See its log for the reason. Try again."
        failure = Unavailable(message, reason="internal", retry_after_ms=1_000)
        code = failure.code
    else:
        code = "ok"
        return answered
    finally:
        count("grpc", method, code, time.perf_counter() - started)
    return failure


def log_refusal(failure: TenureError, method: str, address: str = "", left_out: int = 0) -> None:
    """Log a refused call; ``left_out`` more without a valid key were not logged."""
    if is_outage(failure):
        # The log has the outage; each of its refusals would hide it.
        log.debug("rpc.refused", method=method, code=failure.code)
        return
    log.info("rpc.refused", method=method, code=failure.code)
    note_refusal(failure, method, address, left_out)
