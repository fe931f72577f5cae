"""The machines that kernels are compiled ahead for."""

from __future__ import annotations

import platform

from gmdb.errors import KernelsUnavailable
from gmdb.process.late_dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    machine: str  # as platform.machine() and wheels call it
    triple: str
    cpu: str  # the oldest that has all instructions that kernels may use
    oldest_cpu: str  # the oldest at all: what checks the instructions uses none but its
    cpuid_bits: int  # of x86's leaf 1, register ECX: the instructions that ``cpu`` has beyond it
    has_crc32c: bool  # by the instruction that an intrinsic is declared for

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which Numba compiles for it, and leaves optimising to the link step."""
        return {"NUMBA_CPU_NAME": self.cpu, "NUMBA_CPU_FEATURES": "", "NUMBA_OPT": "0", "NUMBA_DISABLE_JIT": "0"}


_X86_64_V2 = 1 << 0 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23  # SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT

# x86-64-v2 has SSE 4.2, whose CRC32C makes checking pages eight times as fast; processors have had it since 2011.
TARGETS = {
    target.machine: target
    for target in (
        Target("x86_64", "x86_64-unknown-linux-gnu", "x86-64-v2", "x86-64", _X86_64_V2, has_crc32c=True),
        Target("aarch64", "aarch64-unknown-linux-gnu", "generic", "generic", 0, has_crc32c=False),
    )
}


def this_target() -> Target:
    """For this machine, whatever its own CPU can do beyond that."""
    machine = platform.machine()
    if machine not in TARGETS:
        raise KernelsUnavailable(f"kernels cannot be compiled ahead for {machine}; GMDB_KERNELS=jit may do")
    return TARGETS[machine]
