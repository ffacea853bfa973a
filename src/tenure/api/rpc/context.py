"""Types of gRPC for signatures. Only their stubs have parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
# A function that is called with the request, or the requests, and the context.
Behavior: TypeAlias = Callable[[Any, Any], Any]
