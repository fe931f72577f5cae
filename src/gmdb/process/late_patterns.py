"""Regular expressions that are compiled when they are first used: most processes use few of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

__all__ = ["late_pattern"]

if TYPE_CHECKING:
    late_pattern = re.compile
else:

    class _Late:
        """A pattern's methods, once one of them was asked for."""

        def __init__(self, *arguments: Any) -> None:
            self._arguments = arguments

        def __getattr__(self, name: str) -> Any:
            method = getattr(re.compile(*self._arguments), name)
            setattr(self, name, method)
            return method

    late_pattern = _Late
