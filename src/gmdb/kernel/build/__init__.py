"""Compiling all kernels ahead into one extension module: ``python -m gmdb.kernel.build``.

Numba types the kernels and lowers them to LLVM's language (parts.py); LLVM makes objects of them, and one more of the
functions that Python calls (wrappers.py), written in LLVM's language as well; ``ld`` links these (link.py).  So neither
a C compiler nor Python's headers are needed, and what comes out runs on every Python from 3.11 on.
"""
