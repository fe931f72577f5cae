"""Every byte that gmdb writes: one structure a file, each declared once.

A structure's file has its layout, ``regions`` (what lies where) and ``check`` (what is wrong with it).
Nothing here does I/O, and nothing here needs compiled code.
"""
