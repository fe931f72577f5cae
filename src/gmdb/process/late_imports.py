"""Libraries that are imported when first used, so that statements that do not need them do not wait for them.

``from gmdb.process.late_imports import pyarrow as pa`` stands for the import; use it within functions only.
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
