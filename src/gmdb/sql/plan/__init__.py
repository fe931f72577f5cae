"""The planner: which way to rows, which order of joins, which executor."""
