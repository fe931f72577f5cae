"""One owner and its endpoints: how processes share a database.

The process that has a database open for writing holds the lock on its directory.  It serves the others over Arrow
Flight, on a Unix socket that nobody but its user can reach; their sessions live in the owner, so that row locks,
waiting and snapshots are the same for all.  ``connect`` is the way in, whichever process turns out to be the owner.
An owner that serves the network has a second endpoint, at TCP ports.

  connect.py         the way in: this process opens the database, or asks its owner, or a server by its URL
  entrance.py        what an owner listens at: Unix sockets and the file that names them, or TCP ports with TLS
  door.py            the owner's listener: it lets clients in, starts Flight for the first, sees when they are gone
  endpoint.py        the owner's side as a whole, from opening to closing
  streams.py         the Flight server: what comes in on a stream goes to its client's session
  client_session.py  a client's session, in the owner
  operations.py      what a client can ask for: a connection's operations, and what its heaps and streams need
  wire.py            messages, values, rows and errors as bytes
  link.py            the client's side: messages there and answers back, whoever is the owner; what it does if one goes
  channel.py         a client's session with one owner, over Flight
  own_channel.py     the same, once the client's process has become the owner
  remote.py          Connection for clients, made from the declarations
  remote_rows.py     heaps and cursors for clients
  sockets.py         sockets that Flight has opened, found by their ends; what a forked child must leave alone
"""
