"""What the kit's README shows to authors works as it stands."""

import re
from collections.abc import Callable

import grpc

from tests.kit.processes import BEARER, DEADLINE, ROOT, Started, configure_request, handshake_request, refusal
from tyrum.isolation.v1 import isolation_pb2


async def test_readmes_provider_works(launch: Callable[..., Started]) -> None:
    """The README's program starts, takes a configuration and answers what it has not written yet."""
    text = (ROOT / "providers" / "kit" / "README.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    started = await launch("-c", program).listening()
    assert (await started.control.Handshake(handshake_request(), timeout=DEADLINE)).proof
    await started.control.Configure(configure_request(b"{}", {}), timeout=DEADLINE, metadata=BEARER)
    call = started.domain.GetPosture(isolation_pb2.GetPostureRequest(), timeout=DEADLINE, metadata=BEARER)
    assert (await refusal(call)).code is grpc.StatusCode.UNIMPLEMENTED
