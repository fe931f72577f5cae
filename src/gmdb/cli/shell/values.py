"""Values as the shell writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

NULL = "NULL"


def text_of(value: Any) -> str:
    """A value that is not None as text that SQL would read back; bytes are hexadecimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return str(value)


def json_of(value: Any) -> str:
    """A value as JSON; a decimal keeps all its digits, and what JSON has no number for is a text."""
    if value is None:
        return "null"
    if isinstance(value, bool | Decimal) or (isinstance(value, float) and math.isfinite(value)):
        return text_of(value)
    if isinstance(value, int):
        return str(value)
    return json.dumps(text_of(value), ensure_ascii=False)


def csv_of(value: Any) -> str:
    """A value as a field: NULL is nothing at all, an empty text is quoted."""
    if value is None:
        return ""
    text = text_of(value)
    if text == "" or any(c in text for c in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in batch.columns]
    yield from zip(*columns, strict=True) if columns else iter([()] * len(batch))
