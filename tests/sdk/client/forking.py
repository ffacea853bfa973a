"""A program with a synchronous client that forks: ``python -m tests.sdk.client.forking TARGET``.

It ends with 0 when the parent and every child got the results of their tasks.
"""

from __future__ import annotations

import os
import sys
import traceback

from tenure import SyncClient, SyncHandle, activity

CHILDREN = 4
TASKS = 20


@activity(start_to_close="10m")
def double(number: int) -> int:
    return 2 * number


def main() -> int:
    client = SyncClient(sys.argv[1], timeout="20s")
    is_early = sys.argv[2] == "early"
    handle = None if is_early else client.enqueue(double, 21)
    if handle is not None:
        # The parent has used its connection, and goes on to use it.
        assert handle.result(timeout="30s") == 42
    children = [_fork(client, handle) for _ in range(CHILDREN)]
    work(client)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    work(client)
    client.close()
    return sum(map(abs, codes))


def work(client: SyncClient) -> None:
    handles = [client.enqueue(double, number) for number in range(TASKS)]
    assert [each.result(timeout="30s") for each in handles] == [2 * n for n in range(TASKS)]
    bulk = client.enqueue_many(double.call(number) for number in range(TASKS))
    assert [each.result(timeout="30s") for each in bulk] == [2 * n for n in range(TASKS)]
    assert len([*client.list(limit=5)]) == 5


def _fork(client: SyncClient, handle: SyncHandle[int] | None) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(client)
        # A handle of the parent is as good as one of its own.
        assert handle is None or handle.result(timeout="30s") == 42
        client.close()
        code = 0
    except BaseException:  # noqa: BLE001 (whatever it is, the parent is told)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
