"""The extension module: what its functions make of arguments and failures, and the CPUs and Pythons that it is for."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gmdb.errors import KernelsUnavailable
from gmdb.kernel.build.link import find_linker, link
from gmdb.kernel.build.parts import compile_wrappers
from gmdb.kernel.build.platforms import platform_tag
from gmdb.kernel.build.target import this_target

ROOT = Path(__file__).parents[2]
NAME = "_probes"
SCRIPT = f"""
import sys
from pathlib import Path
from gmdb.kernel.build.link import find_linker, link
from gmdb.kernel.build.parts import compile_part, compile_wrappers
from gmdb.kernel.build.target import this_target
part = compile_part(("tests.kernel.probes",))
wrappers = compile_wrappers(list(part.kernels), this_target(), {NAME!r}, "a digest")
link(find_linker(), [wrappers, part.code], Path(sys.argv[1]))
"""


def load(file: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(file.name.partition(".")[0], str(file))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The probes' module, made as that of all kernels is."""
    made = tmp_path_factory.mktemp("probes") / f"{NAME}.abi3.so"
    environment = {**os.environ, **this_target().environment, "GMDB_KERNELS": "build"}
    subprocess.run([sys.executable, "-c", SCRIPT, str(made)], cwd=ROOT, env=environment, check=True, timeout=300)
    return made


@pytest.fixture(scope="module")
def probes(file: Path) -> Any:
    """Its functions, by their own names."""
    module = load(file)
    assert module.SOURCES == "a digest"
    return lambda name: getattr(module, f"tests__kernel__probes__{name}")


def test_numbers_go_in_and_out_as_64_bits(probes: Any) -> None:
    difference = probes("difference")
    assert difference(5, 7) == -2
    assert difference(-1, 0) == -1
    assert difference(-(2**63), -(2**63)) == 0
    assert difference(np.int64(5), np.uint8(7)) == -2
    assert difference(True, False) == 1
    assert probes("nothing")() == -1


def test_what_is_no_64_bit_integer_is_refused(probes: Any) -> None:
    difference = probes("difference")
    for wrong in (1.0, "1", None, b"1"):
        with pytest.raises(TypeError):
            difference(wrong, 1)
    for wrong in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            difference(1, wrong)


def test_another_number_of_arguments_is_refused(probes: Any) -> None:
    with pytest.raises(TypeError, match="difference takes 2 arguments, not 1"):
        probes("difference")(1)
    with pytest.raises(TypeError, match="nothing takes 0 arguments, not 3"):
        probes("nothing")(1, 2, 3)
    with pytest.raises(TypeError, match="no keyword arguments"):
        probes("difference")(1, b=2)


def test_a_function_has_its_text(probes: Any) -> None:
    assert probes("difference").__doc__ == "The first number less the second."
    assert probes("difference").__text_signature__ == "(a, b, /)"


@pytest.mark.parametrize("count", [0, 1, 15, 1000])
def test_a_kernel_has_arrays_of_its_own(probes: Any, count: int) -> None:
    assert probes("allocate")(count) == min(count, 1)


def test_an_array_that_no_memory_holds_is_an_error_of_python(probes: Any) -> None:
    for _ in range(3):
        with pytest.raises(MemoryError):
            probes("allocate")(1 << 56)
    assert probes("allocate")(7) == 1


def test_what_numba_raises_arrives(probes: Any) -> None:
    assert probes("quotient")(-7, 2) == -4
    with pytest.raises(ZeroDivisionError):
        probes("quotient")(1, 0)


def test_a_long_kernel_lets_other_threads_run(probes: Any) -> None:
    flag = np.zeros(1, np.int64)
    setter = threading.Timer(0.01, flag.__setitem__, (0, 1))
    setter.start()
    assert probes("wait_for")(flag.ctypes.data, 1 << 36) == 1
    setter.join()


def test_a_cpu_that_lacks_instructions_is_refused_before_any_is_used(tmp_path: Path) -> None:
    target = this_target()
    if not target.cpuid_bits:
        pytest.skip(f"every {target.machine} has all instructions")
    unknown = replace(target, cpuid_bits=target.cpuid_bits | 1 << 16)  # a bit that no CPU sets
    for one, name in ((target, "_fit"), (unknown, "_unfit")):
        link(find_linker(), [compile_wrappers([], one, name, "")], tmp_path / f"{name}.abi3.so")
    assert load(tmp_path / "_fit.abi3.so").SOURCES == ""
    with pytest.raises(ImportError, match=f"need a CPU with the instructions of {target.cpu}"):
        load(tmp_path / "_unfit.abi3.so")


def test_a_module_needs_nothing_but_python_and_the_c_library(file: Path) -> None:
    target = this_target()
    assert platform_tag(file, target) == f"manylinux_2_17_{target.machine}"
    other = Path(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    assert platform_tag(other, target) == f"linux_{target.machine}", "it needs a library of its own"


def test_without_a_linker_the_build_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelsUnavailable, match="there is no linker"):
        find_linker()
