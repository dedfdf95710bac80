"""A provider's handshake written without the kit, from contract and vectors alone, in synchronous gRPC."""

import base64
import hmac
import json
import struct
import tempfile
from collections.abc import Iterator
from importlib import resources
from typing import Any

import grpc
import pytest

from tests.kit.processes import CREDENTIALS, INSTANCE_ID, NONCE, TOKEN, handshake_request
from tyrum.provider.v1 import control_pb2, control_pb2_grpc
from tyrum_provider_kit.proof import Transcript


class PlainControl(control_pb2_grpc.ProviderControlServiceServicer):
    """What an author in any language writes: HMAC, a bearer comparison, two answers."""

    def Handshake(  # type: ignore[override] # noqa: N802 - the stubs describe asynchronous servicers
        self, request: control_pb2.HandshakeRequest, context: Any
    ) -> control_pb2.HandshakeResponse:
        """Prove the token."""
        contract = next(item for item in request.contracts if item.kind == "isolation")
        fields = (
            request.nonce,
            request.instance_id.encode(),
            contract.kind.encode(),
            b"1",
            f"{contract.major}.{contract.minor}".encode(),
            contract.digest.encode(),
        )
        message = b"tyrum-handshake-1" + b"".join(struct.pack(">I", len(item)) + item for item in fields)
        proof = hmac.digest(_subkey(TOKEN, b"tyrum/proof/1"), message, "sha256")
        return control_pb2.HandshakeResponse(control_version=1, contract=contract, proof=proof)

    def GetDescriptor(  # type: ignore[override] # noqa: N802
        self, request: control_pb2.GetDescriptorRequest, context: Any
    ) -> control_pb2.GetDescriptorResponse:
        """Answer the host alone."""
        bearer = base64.urlsafe_b64encode(_subkey(TOKEN, b"tyrum/bearer/1")).rstrip(b"=").decode()
        if ("authorization", f"Bearer {bearer}") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
        return control_pb2.GetDescriptorResponse(
            provider_descriptor=control_pb2.ProviderDescriptor(provider_id="com.example.plain")
        )


def _subkey(token: bytes, info: bytes) -> bytes:
    return hmac.digest(hmac.digest(bytes(32), token, "sha256"), info + b"\x01", "sha256")


@pytest.fixture(scope="module")
def grpc_addr() -> Iterator[str]:
    """Serve pytest-grpc's server on a socket path instead of a port."""
    with tempfile.TemporaryDirectory(prefix="tk-") as name:
        yield f"unix:{name}/p.sock"


@pytest.fixture(scope="module")
def grpc_add_to_server() -> Any:
    """Tell pytest-grpc how to register the servicer."""
    return control_pb2_grpc.add_ProviderControlServiceServicer_to_server


@pytest.fixture(scope="module")
def grpc_servicer() -> PlainControl:
    """Tell pytest-grpc what to serve."""
    return PlainControl()  # type: ignore[abstract] # the other RPCs stay unimplemented


@pytest.fixture(scope="module")
def grpc_stub_cls(grpc_channel: Any) -> Any:
    """Tell pytest-grpc what to call with."""
    return control_pb2_grpc.ProviderControlServiceStub


def test_plain_handshake_proves_what_the_kit_proves(grpc_stub: Any) -> None:
    """An implementation from the contract's text alone gives the proof that the kit gives."""
    answer = grpc_stub.Handshake(handshake_request())
    contract = answer.contract
    transcript = Transcript(
        NONCE, INSTANCE_ID, "isolation", 1, f"{contract.major}.{contract.minor}", contract.digest
    )
    assert answer.proof == CREDENTIALS.proof(transcript)


def test_plain_bearer_is_the_kits(grpc_stub: Any) -> None:
    """The bearer that a host derives opens a provider that was written without the kit."""
    request = control_pb2.GetDescriptorRequest()
    with pytest.raises(grpc.RpcError):
        grpc_stub.GetDescriptor(request)
    answer = grpc_stub.GetDescriptor(request, metadata=[("authorization", f"Bearer {CREDENTIALS.bearer}")])
    assert answer.provider_descriptor.provider_id == "com.example.plain"


def test_plain_subkeys_match_the_vectors() -> None:
    """The published vectors suffice to check such an implementation."""
    text = (resources.files("tyrum") / "contracts" / "handshake-vectors.json").read_text("utf-8")
    for vector in json.loads(text)["vectors"]:
        token = base64.urlsafe_b64decode(vector["token"] + "=")
        assert _subkey(token, b"tyrum/proof/1").hex() == vector["proof_key"]
