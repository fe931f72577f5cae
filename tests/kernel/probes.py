"""Kernels that show what an extension module makes of arguments, results and failures; test_ahead.py compiles them."""

from __future__ import annotations

import numpy as np

from gmdb.kernel.runtime.compiler import kernel, long_kernel
from gmdb.kernel.runtime.memory import fence, load_i64


@kernel
def difference(a, b):
    """The first number less the second."""
    return a - b


@kernel
def nothing():
    return -1


@kernel
def allocate(count):
    """Make an array, fill and sort it."""
    memory = np.empty(count, np.int64)
    for i in range(count):
        memory[i] = count - i
    memory.sort()
    return memory[0] if count else 0


@kernel
def quotient(a, b):
    return a // b


@long_kernel
def wait_for(flag, rounds):
    """Whether another thread has set the flag meanwhile."""
    for _ in range(rounds):
        fence()
        if load_i64(flag):
            return 1
    return 0
