"""Doing something in a process that is ended when it takes too long: what does not end is a failure, not a hang."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

SECONDS = 240  # of the clock, with others at the machine
BAD = 3


@dataclass(frozen=True)
class Ended:
    code: int  # negative: of the signal that ended it
    cpu_seconds: float
    memory: int  # bytes, at most

    def __str__(self) -> str:
        how = f"signal {signal.Signals(-self.code).name}" if self.code < 0 else f"code {self.code}"
        return f"{how} after {self.cpu_seconds:.1f} s of the CPU, with {self.memory >> 20} MiB"


def run_limited(work: Callable[[], None], cpu_seconds: int) -> Ended:
    """Fork, and do it there.  Whatever it raises is printed, and gives code BAD."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = BAD
        try:
            soft = int(time.process_time()) + cpu_seconds
            resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(SECONDS)
            work()
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status, used = os.wait4(pid, 0)
    return Ended(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss << 10)
