"""Use cases of the kernel, written against the ports of the domain."""
