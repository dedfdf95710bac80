"""The command line: a gRPC client like any other, plus the commands that start the gateway."""
