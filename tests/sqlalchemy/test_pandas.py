"""pandas: frames of every type into tables and back, as users write and read them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sqlalchemy as sa
from sqlalchemy import Engine, create_engine

MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456)
DAY = date(2024, 1, 1)
TIMES = pd.to_datetime([MOMENT, None])
SERIES: dict[str, tuple[pd.Series[Any], Any, list[Any]]] = {  # what goes in, the column's type, what is in the table
    "int8": (pd.Series([1, -128], dtype="int8"), sa.Integer, [1, -128]),
    "uint8": (pd.Series([1, 255], dtype="uint8"), sa.Integer, [1, 255]),
    "uint16": (pd.Series([1, 65535], dtype="uint16"), sa.Integer, [1, 65535]),
    "int32": (pd.Series([1, -(2**31)], dtype="int32"), sa.Integer, [1, -(2**31)]),
    "uint32": (pd.Series([1, 2**32 - 1], dtype="uint32"), sa.BIGINT, [1, 2**32 - 1]),
    "int64": (pd.Series([1, -(2**63)], dtype="int64"), sa.BIGINT, [1, -(2**63)]),
    "whole": (pd.Series([2**62 + 1, None], dtype="Int64"), sa.BIGINT, [2**62 + 1, None]),
    "small": (pd.Series([1, None], dtype="Int8"), sa.Integer, [1, None]),
    "float16": (pd.Series([1.5, None], dtype="float16"), sa.Double, [1.5, None]),
    "float32": (pd.Series([0.5, None], dtype="float32"), sa.Double, [0.5, None]),
    "float64": (pd.Series([0.1, None]), sa.Double, [0.1, None]),
    "double": (pd.Series([0.1, None], dtype="Float64"), sa.Double, [0.1, None]),
    "infinite": (pd.Series([math.inf, -math.inf]), sa.Double, [math.inf, -math.inf]),
    "bool": (pd.Series([True, False]), sa.BOOLEAN, [True, False]),
    "boolean": (pd.Series([True, None], dtype="boolean"), sa.BOOLEAN, [True, None]),
    "bool_objects": (pd.Series([True, None], dtype=object), sa.BOOLEAN, [True, None]),
    "str": (pd.Series(["ü", None], dtype="str"), sa.TEXT, ["ü", None]),
    "objects": (pd.Series(["ü", None], dtype=object), sa.TEXT, ["ü", None]),
    "string": (pd.Series(["ü", None], dtype="string"), sa.TEXT, ["ü", None]),
    "category": (pd.Series(["a", "b"], dtype="category"), sa.TEXT, ["a", "b"]),
    "nothing": (pd.Series([None, None], dtype=object), sa.TEXT, [None, None]),
    "dates": (pd.Series([MOMENT.date(), None]), sa.DATE, [MOMENT.date(), None]),
    "seconds": (pd.Series(TIMES).astype("datetime64[s]"), sa.TIMESTAMP, [MOMENT.replace(microsecond=0), None]),
    "micros": (pd.Series(TIMES), sa.TIMESTAMP, [MOMENT, None]),
    "nanos": (pd.Series(TIMES).astype("datetime64[ns]"), sa.TIMESTAMP, [MOMENT, None]),
    "arrow_int": (pd.Series([1, None], dtype="int64[pyarrow]"), sa.BIGINT, [1, None]),
    "arrow_text": (pd.Series(["ü", None], dtype="string[pyarrow]"), sa.TEXT, ["ü", None]),
    "arrow_time": (pd.Series([MOMENT, None], dtype="timestamp[us][pyarrow]"), sa.TIMESTAMP, [MOMENT, None]),
    "arrow_date": (pd.Series([DAY, None], dtype=pd.ArrowDtype(pa.date32())), sa.DATE, [DAY, None]),
}  # fmt: skip


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that the tests of this file share; each has tables of its own names."""
    engine = create_engine(f"gmdb:///{tmp_path_factory.mktemp('frames')}/frames.gmdb")
    yield engine
    engine.dispose()


@pytest.mark.parametrize("method", [None, "multi"])
def test_every_type_of_a_column_goes_in(bank: Engine, method: Any) -> None:
    frame = pd.DataFrame({name: series for name, (series, _, _) in SERIES.items()})
    frame["zoned"] = pd.Series(TIMES).dt.tz_localize("Asia/Tokyo")
    assert frame.to_sql("types", bank, index=False, if_exists="replace", method=method) == 2
    columns = {column["name"]: column["type"] for column in sa.inspect(bank).get_columns("types")}
    assert [name for name, (_, type_, _) in SERIES.items() if not isinstance(columns[name], type_)] == []
    with bank.connect() as connection:
        rows = connection.execute(sa.text("select * from types")).mappings().all()
    assert {name: [row[name] for row in rows] for name in SERIES} == {name: v for name, (_, _, v) in SERIES.items()}
    back = pd.read_sql_table("types", bank, dtype_backend="pyarrow")
    for name, (series, _, _) in SERIES.items():
        assert back[name].isna().tolist() == series.isna().tolist(), name


def test_types_can_be_chosen(bank: Engine) -> None:
    frame = pd.DataFrame({"d": [Decimal("1.50"), None], "b": [b"\0\xff", None], "s": ["x", "y"], "n": [1, 2]})
    types = {"d": sa.Numeric(9, 2), "b": sa.LargeBinary(), "s": sa.String(5), "n": sa.Numeric(8, 3)}
    frame.to_sql("chosen", bank, index=False, dtype=types)
    back = pd.read_sql_table("chosen", bank, coerce_float=False)
    assert back["d"].tolist()[0] == Decimal("1.50")
    assert [back[name][0] for name in ("b", "s")] == [b"\0\xff", "x"]
    columns = {column["name"]: str(column["type"]) for column in sa.inspect(bank).get_columns("chosen")}
    assert (columns["s"], columns["n"]) == ("VARCHAR(5)", "NUMERIC(8, 3)")
    with pytest.raises(ValueError, match="not a SQLAlchemy type"):
        frame.to_sql("wrong", bank, dtype={"s": 3})  # type: ignore[arg-type]


def test_a_table_that_is_there_is_refused_replaced_emptied_or_added_to(bank: Engine) -> None:
    frame = pd.DataFrame({"i": [1, 2], "s": ["a", "b"]})
    frame.to_sql("again", bank, index=False)
    with pytest.raises(ValueError, match="already exists"):
        frame.to_sql("again", bank, index=False)
    frame.to_sql("again", bank, index=False, if_exists="append")
    assert len(pd.read_sql("again", bank)) == 4
    frame.to_sql("again", bank, index=False, if_exists="delete_rows")
    assert len(pd.read_sql("again", bank)) == 2
    pd.DataFrame({"x": [1.5]}).to_sql("again", bank, index=False, if_exists="replace")
    assert pd.read_sql("again", bank).columns.tolist() == ["x"]
    with pytest.raises(pd.errors.DatabaseError, match="no column"):
        frame.to_sql("again", bank, index=False, if_exists="append")
    assert len(pd.read_sql("again", bank)) == 1


def test_an_index_becomes_columns_with_an_index(bank: Engine) -> None:
    frame = pd.DataFrame({"v": [1.0, 2.0]}, index=pd.Index(["p", "q"], name="key"))
    frame.to_sql("by_key", bank)
    assert pd.read_sql_table("by_key", bank, index_col="key").equals(frame)
    (index,) = sa.inspect(bank).get_indexes("by_key")
    assert index["column_names"] == ["key"]
    levels = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["one", None])
    deep = pd.DataFrame({"v": range(4)}, index=levels)
    deep.to_sql("by_two", bank, index_label=["one", "two"])
    back = pd.read_sql_query("select * from by_two order by one, two", bank, index_col=["one", "two"])
    assert back.index.tolist() == levels.tolist()
    pd.DataFrame({"v": [1]}).to_sql("plain", bank)
    assert pd.read_sql_table("plain", bank).columns.tolist() == ["index", "v"]


def test_names_of_columns_are_kept_as_they_are(bank: Engine) -> None:
    names = ["a b", 'q"uote', "per%cent", "Select", "ünïcode", "(x)", "a:b", "q?"]
    frame = pd.DataFrame([range(len(names))], columns=names)
    for method in (None, "multi"):
        frame.to_sql("Odd Name", bank, index=False, if_exists="replace", method=method)  # type: ignore[arg-type]
        assert pd.read_sql_table("Odd Name", bank).columns.tolist() == names
    with pytest.raises(ValueError, match="already exists"):
        frame.to_sql("Odd Name", bank)


@pytest.mark.parametrize(("method", "chunksize"), [(None, 700), ("multi", 300), ("multi", None)])
def test_many_rows_in_pieces(bank: Engine, method: Any, chunksize: int | None) -> None:
    rows = 2000
    frame = pd.DataFrame({"i": np.arange(rows), "x": np.arange(rows) / 7, "s": [f"s{n}" for n in range(rows)]})
    assert frame.to_sql("many", bank, index=False, if_exists="replace", method=method, chunksize=chunksize) == rows
    pieces = list(pd.read_sql_query("select * from many order by i", bank, chunksize=600))
    assert [len(piece) for piece in pieces] == [600, 600, 600, 200]
    assert pd.concat(pieces, ignore_index=True).equals(frame)
    assert next(iter(pd.read_sql_query("select * from many where i < 0", bank, chunksize=10))).empty


def test_rows_are_written_by_a_function_of_the_users(bank: Engine) -> None:
    def insert(table: Any, connection: Any, keys: list[str], rows: Any) -> int:
        data = pa.Table.from_pylist([dict(zip(keys, row, strict=True)) for row in rows])
        return int(connection.connection.driver_connection.append(table.name, data))

    frame = pd.DataFrame({"i": [1, 2, 3]})
    assert frame.to_sql("appended", bank, index=False, method=insert) == 3
    assert pd.read_sql("select sum(i) as s from appended", bank)["s"].tolist() == [6]


def test_queries_take_parameters_and_say_what_columns_are(bank: Engine) -> None:
    frame = pd.DataFrame({"i": [1, 2, 3], "day": ["2024-01-01", "2024-01-02", None], "x": [0.5, None, 1.5]})
    frame.to_sql("asked", bank, index=False)
    table = sa.Table("asked", sa.MetaData(), autoload_with=bank)
    by_expression = pd.read_sql(sa.select(table.c.i).where(table.c.i > sa.bindparam("n")), bank, params={"n": 1})
    assert by_expression["i"].tolist() == [2, 3]
    by_text = pd.read_sql_query(sa.text("select * from asked where i = :n"), bank, params={"n": 2}, parse_dates=["day"])
    assert by_text["day"].tolist() == [pd.Timestamp("2024-01-02")]
    by_place = pd.read_sql_query("select i from asked where i >= ? order by i", bank, params=(2,), dtype={"i": "Int16"})
    assert (by_place["i"].tolist(), str(by_place["i"].dtype)) == ([2, 3], "Int16")
    some = pd.read_sql_table("asked", bank, columns=["x"], dtype_backend="numpy_nullable")
    assert (some.columns.tolist(), str(some["x"].dtype)) == (["x"], "Float64")
    assert pd.read_sql_query("select i as a, i as a from asked order by i", bank).columns.tolist() == ["a", "a"]
    with pytest.raises(ValueError, match="not found"):
        pd.read_sql_table("nowhere", bank)


def test_frames_belong_to_the_transaction(bank: Engine) -> None:
    with bank.connect() as connection:
        connection.begin()
        pd.DataFrame({"i": [1]}).to_sql("passing", connection, index=False)
        assert len(pd.read_sql("select * from passing", connection)) == 1
        connection.rollback()
    assert not sa.inspect(bank).has_table("passing")
    pd.DataFrame({"i": pd.Series([], dtype="int64")}).to_sql("empty", bank, index=False)
    assert pd.read_sql("select * from empty", bank).empty


@pytest.mark.parametrize(
    "series",
    [pd.Series([1, 2], dtype="uint64"), pd.Series([1j, 2]), pd.Series([[1], [2]]), pd.Series([b"x", b"y"])],
    ids=["uint64", "complex", "lists", "bytes that pandas takes for texts"],
)
def test_what_has_no_type_is_refused_and_leaves_no_rows(bank: Engine, series: pd.Series[Any]) -> None:
    with pytest.raises((ValueError, sa.exc.DBAPIError, pd.errors.DatabaseError)):
        pd.DataFrame({"c": series}).to_sql("refused", bank, index=False, if_exists="replace")
    assert not sa.inspect(bank).has_table("refused") or pd.read_sql_table("refused", bank).empty  # pandas commits it
