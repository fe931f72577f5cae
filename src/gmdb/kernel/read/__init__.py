"""Reading: which version of a row is seen, and rows into columns."""
