"""The name under which Spark finds gmdb by itself: it looks for modules called ``pyspark_*``."""

from gmdb.spark.source import TableSource as DefaultSource

__all__ = ["DefaultSource"]
