"""Compiled functions over page memory, one file a structure.

A kernel takes addresses and numbers, all of them signed 64-bit integers, and returns a number: a result,
or a negative status (kernel/runtime/status.py).  It does no I/O, allocates nothing that outlives it and raises nothing.
"""
