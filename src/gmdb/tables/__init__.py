"""Tables: rows and indexes, their definitions, Arrow batches of them, and all of it read from files."""
