"""Libraries that are imported when first used, so that statements that do not need them do not wait for them.

``from gmdb.process.late_imports import pyarrow as pa`` stands for the import; use it within functions only.  What
other libraries import themselves, and gmdb needs nothing of, ``stood_in_for`` keeps away.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["compute", "numpy", "pyarrow", "ssl", "stood_in_for"]

if TYPE_CHECKING:
    import ssl

    import numpy
    import pyarrow
    from pyarrow import compute
else:

    class _Late(ModuleType):
        """A module that becomes a copy of the named one when something of it is asked for."""

        def __getattr__(self, attribute: str) -> Any:
            module = importlib.import_module(self.__name__)
            self.__dict__.update(module.__dict__)
            self.__class__ = ModuleType  # from here on it costs no more than any module
            return getattr(module, attribute)

    numpy, pyarrow, compute, ssl = map(_Late, ("numpy", "pyarrow", "pyarrow.compute", "ssl"))


class _StandIn(ModuleType):
    """A module of a few functions, each of which imports what it stands for when it is called."""

    def __init__(self, name: str, functions: tuple[str, ...]) -> None:
        super().__init__(name)
        for function in functions:
            setattr(self, function, _calling(name, function))

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "__path__":  # the import asks whether it is a package
            raise AttributeError(attribute)
        return getattr(_real(self.__name__), attribute)  # another thread, that needs the module itself


def _calling(name: str, function: str) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(_real(name), function)(*arguments, **options)

    return call


def _real(name: str) -> ModuleType:
    if isinstance(sys.modules.get(name), _StandIn):
        del sys.modules[name]
    return importlib.import_module(name)


@contextmanager
def stood_in_for(modules: Mapping[str, tuple[str, ...]]) -> Iterator[None]:
    """Within the block, importing one of these modules gives only the functions that are named with it.

    The module itself is imported when one of them is called.
    """
    put = {name: _StandIn(name, functions) for name, functions in modules.items() if name not in sys.modules}
    sys.modules.update(put)
    try:
        yield
    finally:
        for name, stand_in in put.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
