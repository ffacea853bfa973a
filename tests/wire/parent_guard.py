"""Runs a program that does not outlive the process that started it.

``python parent_guard.py PROGRAM …`` asks the kernel to kill this process when its parent dies, then
becomes the program, with the same process id. Where the kernel cannot do that it only becomes it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 (it becomes the program)
