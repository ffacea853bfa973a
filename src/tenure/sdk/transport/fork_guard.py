"""Whether gRPC works in this process: not when it was forked from one that had loaded it.

A forked process has the memory of gRPC but none of its threads, and what it does there disturbs its
parent as well. ``relayed`` is the way around.
"""

from __future__ import annotations

import os
import sys

# gRPC's own handling of forks starts threads in the child while Python is not ready for them,
# which ends some children with a segmentation fault. It is decided when gRPC is loaded, so this
# module comes before it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


class _ForkState:
    is_tainted = False

    def forked(self) -> None:
        self.is_tainted = self.is_tainted or "grpc._cython.cygrpc" in sys.modules


_state = _ForkState()
os.register_at_fork(after_in_child=_state.forked)


def needs_relay() -> bool:
    """Tell whether somebody else has to speak gRPC for this process."""
    return _state.is_tainted
