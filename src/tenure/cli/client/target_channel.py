"""The channels to the targets of a command, used as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from tenure.cli.client.rpc_failure import is_unsent
from tenure.sdk.transport.tls import TLS, credentials


class TargetChannel:
    """A channel for stubs: a call that finds no server goes on to the next target."""

    def __init__(self, targets: Sequence[str], tls: TLS | None) -> None:
        """Prepare a channel to each target; it connects with the first call that goes there."""
        self._channels = {target: _channel(target, tls, len(targets)) for target in targets}
        self._targets = tuple(self._channels)
        self._index = 0

    @property
    def target(self) -> str:
        """Return the target that the next call goes to."""
        return self._targets[self._index]

    @property
    def place(self) -> str:
        """Return all targets, for messages."""
        return " or ".join(self._targets)

    def unary_unary(self, path: str, **settings: Any) -> Callable[..., object]:  # noqa: ANN401 (gRPC's own)
        """Return the callable of a method, as stubs ask for it."""

        def call(request: object, **options: Any) -> object:  # noqa: ANN401 (gRPC's own)
            for _ in self._targets[1:]:
                target = self.target
                try:
                    return self._channels[target].unary_unary(path, **settings)(request, **options)
                except grpc.RpcError as error:
                    # What may have arrived is not sent again here; the next call goes elsewhere.
                    self._leave(target, error)
                    if not is_unsent(error):
                        raise
            return self._channels[self.target].unary_unary(path, **settings)(request, **options)

        return call

    def stream_stream(self, path: str, **settings: Any) -> Callable[..., object]:  # noqa: ANN401
        """Return the callable of a method with streams; it goes where calls go at that time."""

        def call(requests: Iterator[object], **options: Any) -> object:  # noqa: ANN401 (gRPC's own)
            return self._channels[self.target].stream_stream(path, **settings)(requests, **options)

        return call

    def _leave(self, target: str, error: grpc.RpcError) -> None:
        """Go on to the next target, unless another thread has done so."""
        is_away = getattr(error, "code", lambda: None)() is grpc.StatusCode.UNAVAILABLE
        if is_away and target == self.target:
            self._index = (self._index + 1) % len(self._targets)

    def close(self) -> None:
        """End all connections."""
        for channel in self._channels.values():
            channel.close()


def _channel(target: str, tls: TLS | None, count: int) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(target, options=_options(target, count))
    return grpc.secure_channel(target, credentials(tls), options=_options(target, count))


def _options(target: str, count: int) -> list[tuple[str, int]]:
    """Return the options of the channel to one of so many targets."""
    # Who waits over a restart of the server sees it back within a second.
    options = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 1_000)]
    if count > 1:
        # Despite its name the time that one attempt to connect has; then the next is asked.
        options.append(("grpc.min_reconnect_backoff_ms", 3_000))
    # What is on this machine is never behind a proxy.
    host = target.rpartition(":")[0].strip("[]")
    is_local = host in {"localhost", "::1"} or host.startswith("127.")
    return [*options, ("grpc.enable_http_proxy", 0)] if is_local else options
