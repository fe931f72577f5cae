"""A DataFrame of a fleet, with what reads of it had to leave out."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.errors import InterfaceError
from gmdb.spark.fleet import LeftOut, read_report
from gmdb.spark.local import is_local
from gmdb.spark.options import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class FleetRead:
    """A table of each database of a fleet as one DataFrame."""

    frame: DataFrame
    report_to: Path
    _folder: tempfile.TemporaryDirectory[str] | None  # goes with this, if nobody named another

    @property
    def skipped(self) -> list[LeftOut]:
        """Databases, or pages of them, that actions on the DataFrame have left out so far."""
        return read_report(self.report_to)


def read_fleet(
    spark: SparkSession,
    fleet: str | Path | Sequence[str],
    on_error: str,
    report_to: str | Path | None,
    options: dict[str, Any],
) -> FleetRead:
    """Load a pattern, or a list of paths and patterns; ``options`` are those of the data source."""
    folder = None
    if report_to is None:
        if not is_local(spark.sparkContext.master):
            said = "say where workers are to tell of what they leave out"
            raise InterfaceError(f"report_to: {said}: a directory that they and the driver can write to")
        folder = tempfile.TemporaryDirectory(prefix="gmdb-report-", ignore_cleanup_errors=True)
        report_to = folder.name
    target = Path(report_to).absolute()
    reader = spark.read.format("gmdb").options(onError=on_error, reportTo=str(target), **options)
    given = [fleet] if isinstance(fleet, str | Path) else fleet
    paths = [str(local_path(str(path))) for path in given]  # whoever plans may stand in another directory
    return FleetRead(reader.load(paths if len(paths) > 1 else paths[0]), target, folder)
