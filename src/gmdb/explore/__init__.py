"""The explorer: a database in the browser, over loopback.

``moments`` is where listings come from: files, memory or the log.  ``answers`` makes them into JSON, ``web`` hands that
out to whoever shows the token, and ``static`` is what runs in the browser: plain modules, without a build step.
"""
