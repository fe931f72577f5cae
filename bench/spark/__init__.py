"""``python -m bench.spark``: Spark with gmdb, beside Spark with PostgreSQL over JDBC and with Parquet."""
