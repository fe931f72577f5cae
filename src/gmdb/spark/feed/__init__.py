"""A table's changes as a stream: ``spark.readStream.format("gmdb")``."""
