"""What the gateway's reflection finds: every symbol of the contracts, and those of google.rpc."""

from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor
from google.rpc import error_details_pb2, status_pb2

ERROR_FILES = (status_pb2.DESCRIPTOR.name, error_details_pb2.DESCRIPTOR.name)
"""Imported here, which puts them into the pool: no contract imports what errors carry in their trailers."""


class Symbols:
    """The descriptor pool of this process, with the methods of services among its symbols.

    A pool written in C knows a service's name and not those of its methods, which clients ask for to describe
    one RPC.
    """

    def __init__(self) -> None:
        self._pool: Any = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        """Everything else is the pool's."""
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - as the pool names it
        """Find the file that defines a message, enum, field, service or method.

        Raises:
            KeyError: There is no such symbol.
        """
        try:
            file: FileDescriptor = self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            found: ServiceDescriptor = self._pool.FindServiceByName(service)
            if method not in found.methods_by_name:
                raise
            file = found.file
        return file
