"""What the tables are: definitions kept as rows of tables like any other."""
