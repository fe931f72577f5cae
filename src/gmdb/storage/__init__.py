"""Pages and where they live: the directory's files, devices mapped into memory, tablespaces, segments."""
