"""One owner and its endpoint: how processes on one machine share a database.

The process that has a database open for writing holds the lock on its directory.  It answers the others over Arrow
Flight, on a Unix socket that nobody but its user can reach; their sessions live in the owner, so that row locks,
waiting and snapshots are the same for all.  ``connect`` is the way in, whoever turns out to be the owner.

  place.py       where the sockets are, and the file in the database's directory that says so
  door.py        the owner's listener: it lets clients in, starts Flight for the first, sees when they are gone
  endpoint.py    the owner's side as a whole, from opening to closing
  streams.py     the Flight server: what comes in on a stream goes to its client's session
  session.py     a client's session, in the owner
  operations.py  what a client can ask of it
  wire.py        messages, rows and errors as bytes
  link.py        the client's side: messages there and answers back
  remote.py      Connection and Heap, for clients
  connect.py     local or remote
  forks.py       what a forked child must leave alone
"""
