"""PolicyService over the standing permissions: parse, call, convert."""

from typing import Any

from tyrum.policy.v1 import policy_pb2, policy_pb2_grpc
from tyrum_gateway.app.overrides import Overrides
from tyrum_gateway.domain.ids import OverrideId
from tyrum_gateway.rpc import convert
from tyrum_gateway.rpc.convert_override import override
from tyrum_gateway.rpc.guard import caller


class PolicyServicer(policy_pb2_grpc.PolicyServiceServicer):
    """Lists and revokes what humans permitted for good."""

    def __init__(self, overrides: Overrides) -> None:
        self._overrides = overrides

    async def ListOverrides(  # noqa: N802 - named by the contract
        self, request: policy_pb2.ListOverridesRequest, context: Any
    ) -> policy_pb2.ListOverridesResponse:
        """Page through overrides; the token is the last id of the page before."""
        size = convert.page_size(request.page_size, default=50, maximum=200)
        token = request.page_token
        page = await self._overrides.page(
            OverrideId.parse(token, "page_token") if token else None, size, ended=request.include_ended
        )
        return policy_pb2.ListOverridesResponse(
            overrides=[override(item) for item in page.overrides], next_page_token=page.following or ""
        )

    async def RevokeOverride(  # noqa: N802 - named by the contract
        self, request: policy_pb2.RevokeOverrideRequest, context: Any
    ) -> policy_pb2.RevokeOverrideResponse:
        """End an override."""
        override_id = OverrideId.parse(request.override_id, "override_id")
        ended = await self._overrides.revoke(caller(), override_id, convert.reason(request.reason))
        return policy_pb2.RevokeOverrideResponse(override=override(ended))
