"""The DuckDB executor: a plan written as DuckDB's SQL, over Arrow batches of what its access paths find."""
