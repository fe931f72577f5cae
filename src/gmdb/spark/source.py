"""The data source that Spark calls ``gmdb``: docs/spark.md has its options."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

import json

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from gmdb.errors import InterfaceError
from gmdb.spark.change_reader import ChangeReader, change_schema
from gmdb.spark.fleet_reader import FleetReader, fleet_schema
from gmdb.spark.loading import TableStreamWriter, TableWriter
from gmdb.spark.options import (
    ROWS,
    asks_for_changes,
    is_for_catalog,
    own_options,
    parse_change_options,
    parse_options,
    parse_stream_options,
    parse_write_options,
)
from gmdb.spark.pinned_snapshots import describe
from gmdb.spark.spark_types import columns_by_name, spark_schema
from gmdb.spark.table_reader import TableReader
from gmdb.spark.views.view_reader import ViewReader, view_schema

_KEPT = "gmdb.options"  # under which the schema of a table in Spark's catalog remembers them


class TableSource(DataSource):
    """A table of a database or of many, or a view of their storage; others may have them open and change them."""

    @classmethod
    def name(cls) -> str:
        return "gmdb"

    @property
    def _given(self) -> dict[str, str]:
        return own_options(self.options)

    def _known(self, schema: StructType) -> dict[str, str]:
        """The options; of a table in Spark's catalog, which hands over none, those that its schema remembers."""
        saved = next((field.metadata[_KEPT] for field in schema.fields if _KEPT in field.metadata), "{}")
        return self._given or json.loads(saved)

    def schema(self) -> StructType:
        schema = self._schema()
        if is_for_catalog(self.options):
            schema.fields[0].metadata[_KEPT] = json.dumps(self._given)
        return schema

    def _schema(self) -> StructType:
        if asks_for_changes(self._given):  # Spark does not tell whether it is for a stream
            stream = parse_change_options(self._given)
            return change_schema(stream, describe(stream.path, stream.table, "", stream.owner))
        options = parse_options(self._given)
        if options.fleet:
            return fleet_schema(options)
        if options.view != ROWS:
            return view_schema(options)
        table = describe(options.path, options.table, options.snapshot, options.owner)
        return spark_schema(columns_by_name(table, options.columns) if options.columns else table.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self._known(schema))
        if options.fleet:
            return FleetReader(options, schema)
        return TableReader(options, schema) if options.view == ROWS else ViewReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark calls it so)
        options = parse_change_options(self._known(schema))
        if "_op" not in schema.fieldNames():
            raise InterfaceError('a stream is one of changes; say so: .option("view", "changes")')
        return ChangeReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return TableWriter(parse_write_options(self._known(schema)), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        return TableStreamWriter(parse_stream_options(self._known(schema)), schema, overwrite)
