"""Benchmarks: gmdb beside its peers, the same work over the same data in one run.

What counts are ratios, because they carry from one machine to another; times do not.
"""
