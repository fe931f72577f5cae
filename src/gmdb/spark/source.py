"""The data source that Spark calls ``gmdb``: docs/spark.md has its options."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from gmdb.spark.fleet_reader import FleetReader, fleet_schema
from gmdb.spark.options import ROWS, parse_options
from gmdb.spark.reader import TableReader
from gmdb.spark.snapshots import describe
from gmdb.spark.types import columns_by_name, spark_schema
from gmdb.spark.views.reader import ViewReader, view_schema
from gmdb.spark.write_options import parse_write_options
from gmdb.spark.writer import TableWriter


class TableSource(DataSource):
    """A table of a database or of many, or a view of their storage; others may have them open and change them."""

    @classmethod
    def name(cls) -> str:
        return "gmdb"

    def schema(self) -> StructType:
        options = parse_options(self.options)
        if options.fleet:
            return fleet_schema(options)
        if options.view != ROWS:
            return view_schema(options)
        table = describe(options.path, options.table, options.snapshot, options.owner)
        return spark_schema(columns_by_name(table, options.columns) if options.columns else table.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        if options.fleet:
            return FleetReader(options, schema)
        return TableReader(options, schema) if options.view == ROWS else ViewReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return TableWriter(parse_write_options(self.options), schema, overwrite)
