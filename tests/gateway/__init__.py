"""The gateway as a whole: real processes, sockets and databases."""
