"""Lets a test adopt orphans: processes that a grading leaves running become its children."""

import ctypes
import os
import time

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """From now on, a process that loses its parent becomes this process's child."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("on this system a process cannot adopt orphans")


def children_left(patience_seconds=100):
    """Waits for children to end. Returns the command lines of children that still run."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
        except ChildProcessError:
            return []
    left = []
    with open("/proc/thread-self/children", encoding="ascii") as file:
        for child in file.read().split():
            with open(f"/proc/{child}/cmdline", "rb") as words:
                left.append(words.read())
    return left
