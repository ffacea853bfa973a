"""The checks of what a run says when its attempt ends; reports of all tasks use them."""

from __future__ import annotations

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.run.record import Yield
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument, PayloadTooLarge


def check_wish(value: Yield) -> None:
    """Check with what a run gives up its slot."""
    checks.integer(value.seen, "seen", 0, limits.ATTEMPT_MAX)
    if value.wake_at_ms:
        checks.instant_ms(value.wake_at_ms, "wakeAt")
    checks.text(value.wake_key, "wakeKey", bytes_max=limits.WAKE_KEY_BYTES_MAX)
    checks.integer(value.wake_index, "wakeIndex", 0, limits.ATTEMPT_MAX)
    checks.integer(value.patience_n, "patienceN", 0, limits.ATTEMPT_MAX)
    checks.duration_ms(value.patience_ms, "patienceMs", minimum=0)
    if len(value.waits) > limits.WAITS_SHOWN_MAX:
        message = f"waits must be at most {limits.WAITS_SHOWN_MAX}"
        raise InvalidArgument(message, field="waits")
    for each in value.waits:
        for text in (each.kind, each.key, each.detail):
            checks.text(text, "waits", bytes_max=limits.WAIT_TEXT_BYTES_MAX)
        checks.text(each.site, "waits", bytes_max=limits.STEP_SITE_BYTES_MAX)
        if each.since_ms:
            checks.instant_ms(each.since_ms, "waits")
    checks.integer(value.wait_count, "waitCount", 0, limits.ATTEMPT_MAX)


def check_anew(value: c.Anew) -> None:
    """Check with what a run begins anew; whether it keeps signals, only its journal tells."""
    checks.integer(value.seen, "seen", 0, limits.ATTEMPT_MAX)
    if value.input is not None:
        checks.payload(value.input, "nextInput")
    if value.encoding:
        checks.name(value.encoding, "nextEncoding")
    if len(value.keep) > limits.KEPT_SIGNALS_MAX:
        message = f"keep must have at most {limits.KEPT_SIGNALS_MAX} positions"
        raise PayloadTooLarge(message, limit=limits.KEPT_SIGNALS_MAX)
    before = 0
    for pos in value.keep:
        if not before < pos <= value.seen:
            message = "keep must have positions up to seen, each once, in ascending order"
            raise InvalidArgument(message, field="keep")
        before = pos
