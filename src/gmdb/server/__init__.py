"""One owner and its endpoints: how processes share a database.

The process that has a database open for writing holds the lock on its directory.  It serves the others over Arrow
Flight, on a Unix socket that nobody but its user can reach; their sessions live in the owner, so that row locks,
waiting and snapshots are the same for all.  ``connect`` is the way in, whichever process turns out to be the owner.
An owner that serves the network has a second endpoint, at TCP ports.

  entrance.py       where the Unix sockets are, and the file in the database's directory that says so
  entrance.py    the ways in: Unix sockets, or TCP ports with TLS
  sockets.py     sockets that Flight has opened, found by their ends
  door.py        the owner's listener: it lets clients in, starts Flight for the first, sees when they are gone
  endpoint.py    the owner's side as a whole, from opening to closing
  streams.py     the Flight server: what comes in on a stream goes to its client's session
  client_session.py     a client's session, in the owner
  database/operations.py  what a client can ask for: a connection's operations, and what its heaps and streams need
  wire.py        messages, values, rows and errors as bytes
  link.py        the client's side: messages there and answers back
  remote.py      Connection for clients, made from the declarations
  remote_rows.py heaps and cursors for clients
  connect.py     the client's way to a server: its URL, TLS, and what may be wrong there
  connect.py     local or remote
  sockets.py       what a forked child must leave alone
"""
