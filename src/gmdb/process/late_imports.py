"""Libraries that are read when something of them is first used: what a statement does without costs it no time.

``from gmdb.process.late_imports import pyarrow as pa`` stands for the import; it is to be used within functions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["compute", "pyarrow"]

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import compute
else:

    class _Late:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            value = getattr(importlib.import_module(self._name), attribute)
            setattr(self, attribute, value)
            return value

    pyarrow, compute = _Late("pyarrow"), _Late("pyarrow.compute")
