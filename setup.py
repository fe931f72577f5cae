"""What pyproject.toml cannot say: a wheel has the kernels, compiled ahead, and is for the systems that they run on.

An editable installation has none: ``make kernels`` compiles them where the sources are.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

SOURCES = Path(__file__).parent / "src"
BUILD = [sys.executable, "-m", "gmdb.kernel.build"]


def run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    return subprocess.run(
        [*BUILD, *arguments], check=True, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


class BuildWithKernels(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.mkpath(str(self._kernels))
            run("--into", str(self._kernels))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, *map(str, self._kernels.glob("*.so"))]

    @property
    def _kernels(self) -> Path:
        return Path(self.build_lib, "gmdb", "kernel")


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        kernels = Path(self.bdist_dir, "gmdb", "kernel")
        if not list(kernels.glob("*.so")):  # an editable installation
            return super().get_tag()
        return "cp311", "abi3", run("--platform", "--into", str(kernels))


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(distclass=BinaryDistribution, cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel})
