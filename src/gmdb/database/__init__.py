"""An open database: what connections of a process share, and a connection with all that it returns."""
