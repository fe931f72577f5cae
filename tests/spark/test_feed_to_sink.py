"""A second database, fed by a stream of changes, is equal to the first."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.feed_soak import Soak

pytestmark = pytest.mark.spark


def test_a_copy_that_a_stream_feeds_is_equal_row_for_row(spark: SparkSession, tmp_path: Path) -> None:
    outcome = Soak(spark, tmp_path, seed=1, patience=3).run(6)
    assert outcome.changes > 100
