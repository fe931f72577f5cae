"""What ``gmdb import`` reads: SQLite databases, CSV and Parquet files, each as plans of tables."""
