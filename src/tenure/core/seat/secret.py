"""The secret of the calls to a served worker: every server of a database derives the same one."""

import base64
import hashlib
import hmac

_PURPOSE = b"tenure served worker\0"


def call_secret(key: bytes, worker_id: str) -> str:
    """Return what shows a worker that a call is from its servers; nothing else derives from it."""
    digest = hmac.digest(key, _PURPOSE + worker_id.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
