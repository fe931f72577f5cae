"""Each layer has one table of types, and no type is missing in any."""

from __future__ import annotations

from collections.abc import Container

import pyarrow as pa
import pytest

from gmdb.database import pep249
from gmdb.format.columns import TYPES, parse_column
from gmdb.sql import casts, types
from gmdb.sql.duck.values import duck_type
from gmdb.sql.plan.estimates import SIZES
from gmdb.sql.statements import executemany
from gmdb.sqlalchemy import reflection
from gmdb.tables.arrow.arrow_types import arrow_schema, arrow_type, fit_batch, python_values
from tests.column_values import VALUES, as_stored

SPELLED = {parse_column("c", spelling).type.name for spelling in VALUES}
OBJECTS = (pep249.STRING, pep249.BINARY, pep249.NUMBER, pep249.DATETIME)
LOBS = ("BLOB", "CLOB")  # which are texts and bytes within expressions


@pytest.mark.parametrize("name", TYPES)
def test_every_layer_knows_every_type(name: str) -> None:
    assert name in SPELLED, "tests/column_values.py"
    assert sum(name == one for one in OBJECTS) == 1, "database/pep249.py"
    assert name in types.CALLED, "sql/types.py"
    assert name in executemany.STORED, "sql/statements/executemany.py"
    assert name in SIZES, "sql/plan/estimates.py"
    is_known: Container[str] = {*reflection.PLAIN, *reflection.SIZED, "DECIMAL"}
    assert name in is_known, "sqlalchemy/reflection.py"
    if name not in LOBS:
        assert name in casts.TAKEN, "sql/casts.py: parameters"


@pytest.mark.parametrize("spelling", VALUES)
def test_values_become_arrow_and_texts_and_come_back(spelling: str) -> None:
    column = parse_column("c", spelling)
    schema = arrow_schema([column])
    values = [value for value in VALUES[spelling] if len(str(value)) < 100]
    batch = pa.record_batch([pa.array(values, arrow_type(column.type))], schema=schema)
    (fitted,) = fit_batch("t", [column], batch, 0)
    assert python_values(fitted) == values
    assert duck_type(column.type)
    if column.type.name in LOBS:
        return
    write, read = casts.write_text(column.type), casts.read_text(column.type)
    for value in values:
        again = read(write(value))
        assert (list(again) if column.type.is_array else again) == as_stored(spelling, value)


def test_spark_knows_every_type() -> None:
    from gmdb.spark import spark_types

    for spelling in VALUES:
        type_ = parse_column("c", spelling).type
        own = spark_types.spark_type(type_)
        assert spark_types.takes(type_, own), spelling
