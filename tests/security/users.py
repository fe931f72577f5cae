"""Other users of the machine, for tests that run as root."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

NOBODY, STRANGER = 65534, 65532
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user or give files away")


def as_user(work: Callable[[], Any], user: int = NOBODY) -> Any:
    """What a function returns in a child that is another user; the name of an exception instead of one."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            try:
                said = work()
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writing, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as said:
        return json.loads(said.read())
