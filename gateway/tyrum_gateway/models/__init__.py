"""Model transports: where the next step of a turn comes from."""
