"""The gateway's gRPC edge: services, conversion, the error table, authentication."""
