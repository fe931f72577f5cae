"""One Spark for all tests here.  Without Java they fail: what was not run is not known to work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from gmdb.spark.jobs import local_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = local_session(tmp_path_factory.mktemp("spark") / "spark.log")
    yield session
    session.stop()


@pytest.fixture
def load(spark: SparkSession, path: Path) -> Callable[..., DataFrame]:
    """Read a table of the test's database: ``load("tbl", columns="i")``."""

    def read(table: str, **options: Any) -> DataFrame:
        return spark.read.format("gmdb").options(table=table, **options).load(str(path))

    return read
