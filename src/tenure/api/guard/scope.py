"""The namespace of a request: checked and made canonical here, for every edge."""

from __future__ import annotations

from typing import Final

from tenure.core import check

DEFAULT: Final = "default"


def scope(value: str, field: str = "namespace") -> str:
    """Return the namespace of a request, as ``tenant/workspace``.

    An empty value means ``default``, and a bare name ``x`` is ``x/default``.
    """
    return check.namespace(value or DEFAULT, field)
