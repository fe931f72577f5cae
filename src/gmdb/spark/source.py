"""The data source that Spark calls ``gmdb``.

    spark.read.format("gmdb").option("table", "tbl").load("shop.gmdb")

| option | meaning |
|---|---|
| table | the table to read |
| columns | some of its columns, such as "i,s"; all if it is not given |
| maxPartitionBytes | how many bytes of pages make a partition at most: 16m unless given |

    df.write.format("gmdb").option("table", "tbl").mode("append").save("shop.gmdb")

takes other options: write_options.py.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from gmdb.spark.options import parse_options
from gmdb.spark.plan import closed_database
from gmdb.spark.reader import TableReader
from gmdb.spark.types import spark_schema, unique_positions
from gmdb.spark.write_options import parse_write_options
from gmdb.spark.writer import TableWriter


class TableSource(DataSource):
    """A table of a database that no process has open for writing."""

    @classmethod
    def name(cls) -> str:
        return "gmdb"

    def schema(self) -> StructType:
        options = parse_options(self.options)
        with closed_database(options.path) as files:
            table = files.table(options.table)
        if not options.columns:
            return spark_schema(table.columns)
        return spark_schema([table.columns[n] for n in unique_positions(table, options.columns)])

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(parse_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return TableWriter(parse_write_options(self.options), schema, overwrite)
