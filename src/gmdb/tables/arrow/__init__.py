"""Tables into Arrow record batches, and Arrow record batches into tables."""
