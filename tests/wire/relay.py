"""A relay of calls between a worker and a server that keeps some of them to itself.

Where the proxy knows connections, the relay knows methods, as a balancer does that passes short
calls on and parks the long ones. What is kept is neither refused nor answered.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self, cast

import grpc
import grpc.aio

from tests.wire.call import OPTIONS


class Relay(grpc.GenericRpcHandler):
    """Listens on a port of its own and passes every call on to ``target`` as it came."""

    def __init__(self, target: str, *, kept: str) -> None:
        """Keep the calls of one method until ``pass_all``."""
        self._target = target
        self._kept = kept
        self._passing = asyncio.Event()
        self.kept_count = 0
        self.address = ""

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._target, options=OPTIONS)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)
        await self._channel.close()

    def pass_all(self) -> None:
        """Keep nothing any longer; what was kept goes on."""
        self._passing.set()

    def service(self, handler_call_details: Any) -> Any:
        """Take any method; on the wire a call with one message is a stream of one."""
        path = handler_call_details.method

        async def pass_on(requests: Any, context: Any) -> None:
            if path.rpartition("/")[2] == self._kept:
                self.kept_count += 1
                await self._passing.wait()
            await self._pass_on(path, requests, context)

        return grpc.stream_stream_rpc_method_handler(pass_on)

    async def _pass_on(self, path: str, requests: Any, context: Any) -> None:
        method = cast("Any", self._channel.stream_stream(path))
        call = method(requests, metadata=_own(context.invocation_metadata()))
        try:
            async for answer in call:
                await context.write(answer)
        except grpc.aio.AioRpcError as error:
            context.set_trailing_metadata(_own(error.trailing_metadata()))
            await context.abort(error.code(), error.details() or "")
        finally:
            call.cancel()


def _own(metadata: Any) -> tuple[tuple[str, Any], ...]:
    """Return what was said beside a call, without what each connection says for itself."""
    said = tuple(metadata or ())
    return tuple((key, value) for key, value in said if key != "user-agent")
