"""Pages: how a kernel reaches, checks, logs, takes and frees them."""
