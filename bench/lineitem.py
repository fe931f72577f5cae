"""TPC-H's table of order lines, as far as its queries 1 and 6 need it, with random contents of its shape."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

COLUMNS = {
    "l_orderkey": "bigint",
    "l_partkey": "bigint",
    "l_suppkey": "bigint",
    "l_linenumber": "int",
    "l_quantity": "double precision",
    "l_extendedprice": "double precision",
    "l_discount": "double precision",
    "l_tax": "double precision",
    "l_returnflag": "varchar(1)",
    "l_linestatus": "varchar(1)",
    "l_shipdate": "date",
}
FIRST_DAY, DAYS = np.datetime64("1992-01-02"), 2526
LAST_SHIPPED = "1998-09-02"
PRICING_SUMMARY = f"""
select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
       sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge, avg(l_quantity) as avg_qty,
       avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc, count(*) as count_order
from lineitem where l_shipdate <= '{LAST_SHIPPED}'
group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus
"""
FORECAST_REVENUE = """
select sum(l_extendedprice * l_discount) as revenue from lineitem
where l_shipdate >= '1994-01-01' and l_shipdate < '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24
"""


@cache
def lineitem(row_count: int) -> pa.Table:
    generator = np.random.default_rng(19_920_102)
    shipped = FIRST_DAY + generator.integers(0, DAYS, row_count).astype("timedelta64[D]")
    flags, states = np.array(["A", "N", "R"]), np.array(["F", "O"])
    return pa.table(
        {
            "l_orderkey": pa.array(np.arange(row_count) // 4, pa.int64()),
            "l_partkey": pa.array(generator.integers(1, 200_000, row_count), pa.int64()),
            "l_suppkey": pa.array(generator.integers(1, 10_000, row_count), pa.int64()),
            "l_linenumber": pa.array(np.arange(row_count) % 4 + 1, pa.int32()),
            "l_quantity": pa.array(generator.integers(1, 51, row_count).astype(float)),
            "l_extendedprice": pa.array(generator.integers(90_000, 10_500_000, row_count) / 100),
            "l_discount": pa.array(generator.integers(0, 11, row_count) / 100),
            "l_tax": pa.array(generator.integers(0, 9, row_count) / 100),
            "l_returnflag": pa.array(flags[generator.integers(0, 3, row_count)]),
            "l_linestatus": pa.array(states[generator.integers(0, 2, row_count)]),
            "l_shipdate": pa.array(shipped),
        }
    )


def shipped_by_then(table: pa.Table) -> int:
    """How many rows query 1 counts."""
    days = table["l_shipdate"].to_numpy().astype("datetime64[D]")
    return int((days <= np.datetime64(LAST_SHIPPED)).sum())


def revenue(table: pa.Table) -> float:
    """What query 6 answers."""
    days = table["l_shipdate"].to_numpy().astype("datetime64[D]")
    discount, quantity = table["l_discount"].to_numpy(), table["l_quantity"].to_numpy()
    chosen = (days >= np.datetime64("1994-01-01")) & (days < np.datetime64("1995-01-01"))
    chosen &= (discount >= 0.05) & (discount <= 0.07) & (quantity < 24)
    return float((table["l_extendedprice"].to_numpy() * discount)[chosen].sum())
