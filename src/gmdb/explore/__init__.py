"""The explorer: a database in the browser, over loopback.

``moments`` makes listings from files, memory or the log.  ``responses`` turns them into JSON, ``web`` serves that to
clients that have the token, and ``static`` runs in the browser: plain modules, without a build step.
"""
