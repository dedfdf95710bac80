"""What a running gateway serves, learned from its own reflection, and calls of it with raw bytes."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, cast

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

DEADLINE = 30.0

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Rpc:
    """One method of a service."""

    service: str
    method: str
    request: Descriptor
    response: Descriptor
    client_streaming: bool
    server_streaming: bool

    @classmethod
    def of(cls, method: MethodDescriptor) -> "Rpc":
        """Read it from its contract."""
        return cls(
            method.containing_service.full_name,
            method.name,
            method.input_type,
            method.output_type,
            method.client_streaming,
            method.server_streaming,
        )

    @property
    def path(self) -> str:
        """As on the wire."""
        return f"/{self.service}/{self.method}"

    @property
    def package(self) -> str:
        """Proto package of the service."""
        return self.service.rpartition(".")[0]

    @property
    def own(self) -> bool:
        """Whether the service is the project's and not a standard one."""
        return self.service.startswith("tyrum.")

    def blank(self) -> Message:
        """An empty request."""
        return message_factory.GetMessageClass(self.request)()

    def __str__(self) -> str:
        return f"{self.service.rpartition('.')[2]}.{self.method}"


async def rpcs(channel: grpc.aio.Channel, metadata: Metadata) -> list[Rpc]:
    """Ask the gateway's reflection for everything it serves."""
    (listed,) = await _reflect(channel, metadata, reflection_pb2.ServerReflectionRequest(list_services=""))
    names = [service.name for service in listed.list_services_response.service]
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for found in (await symbols(channel, metadata, names)).values():
        files |= {file.name: file for file in found}
    pool = DescriptorPool()
    _add(pool, files)
    return [Rpc.of(method) for name in names for method in pool.FindServiceByName(name).methods]


async def symbols(
    channel: grpc.aio.Channel, metadata: Metadata, names: Iterable[str]
) -> dict[str, list[descriptor_pb2.FileDescriptorProto]]:
    """Ask the gateway's reflection for the files of each symbol: none of one that it does not know."""
    names = list(names)
    answers = await _reflect(
        channel,
        metadata,
        *(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in names),
    )
    return {
        name: [
            descriptor_pb2.FileDescriptorProto.FromString(raw)
            for raw in answer.file_descriptor_response.file_descriptor_proto
        ]
        for name, answer in zip(names, answers, strict=True)
    }


async def _reflect(channel: grpc.aio.Channel, metadata: Metadata, *requests: Any) -> list[Any]:
    async def sending() -> AsyncIterator[Any]:
        for request in requests:
            yield request

    stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast("Any", channel))
    call = stub.ServerReflectionInfo(sending(), metadata=metadata, timeout=DEADLINE)
    return [answer async for answer in call]


def _add(pool: DescriptorPool, files: dict[str, descriptor_pb2.FileDescriptorProto]) -> None:
    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        for dependency in files[name].dependency:
            add(dependency)
        pool.AddSerializedFile(files[name].SerializeToString())

    for name in files:
        add(name)


async def call(
    channel: grpc.aio.Channel,
    rpc: Rpc,
    request: bytes,
    metadata: Metadata | None,
    *,
    timeout: float = DEADLINE,
) -> list[bytes]:
    """Call with raw bytes; return the answers that came until the end, of a stream until the first.

    Raises:
        AioRpcError: As the gateway answered.
    """
    open_channel: Any = channel  # raw bytes go where the stubs expect messages
    if rpc.client_streaming:
        both = open_channel.stream_stream(rpc.path)
        return await _first(both(_one(request), metadata=metadata, timeout=timeout))
    if rpc.server_streaming:
        return await _first(open_channel.unary_stream(rpc.path)(request, metadata=metadata, timeout=timeout))
    return [await open_channel.unary_unary(rpc.path)(request, metadata=metadata, timeout=timeout)]


async def _one(request: bytes) -> AsyncIterator[bytes]:
    yield request


async def _first(answers: Any) -> list[bytes]:
    try:
        async for answer in answers:
            return [answer]
        return []
    finally:
        answers.cancel()


def infos(error: grpc.aio.AioRpcError) -> list[ErrorInfo]:
    """Every ErrorInfo that came with an error."""
    found = []
    trailers = cast("Iterable[tuple[str, bytes]]", error.trailing_metadata() or ())
    for key, value in trailers:
        if key == "grpc-status-details-bin":
            for detail in Status.FromString(value).details:
                info = ErrorInfo()
                if detail.Unpack(info):
                    found.append(info)
    return found
