"""The types of gRPC that stand in many signatures. Only their stubs have parameters."""

from __future__ import annotations

from typing import Any, TypeAlias

import grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
