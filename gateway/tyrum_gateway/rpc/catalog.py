"""CatalogService over the provider host's snapshots and the stored bindings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tyrum.catalog.v1 import catalog_pb2, catalog_pb2_grpc
from tyrum_gateway.app.provider_restart import ProviderRestart
from tyrum_gateway.domain.errors import InvalidRequest, NotFound
from tyrum_gateway.domain.ids import BindingId
from tyrum_gateway.domain.ports import BoundOperation, Store
from tyrum_gateway.rpc import convert
from tyrum_gateway.rpc.guard import caller
from tyrum_provider_host.claims import stated, unverified
from tyrum_provider_host.host import ProviderHost
from tyrum_provider_host.states import StateValue
from tyrum_provider_host.status import Lifecycle, ProviderStatus

_LIFECYCLES = {
    Lifecycle.STARTING: catalog_pb2.PROVIDER_LIFECYCLE_STARTING,
    Lifecycle.ADMITTED: catalog_pb2.PROVIDER_LIFECYCLE_ADMITTED,
    Lifecycle.SUSPENDED: catalog_pb2.PROVIDER_LIFECYCLE_SUSPENDED,
    Lifecycle.BACKING_OFF: catalog_pb2.PROVIDER_LIFECYCLE_BACKING_OFF,
    Lifecycle.REJECTED: catalog_pb2.PROVIDER_LIFECYCLE_REJECTED,
    Lifecycle.QUARANTINED: catalog_pb2.PROVIDER_LIFECYCLE_QUARANTINED,
    Lifecycle.STOPPED: catalog_pb2.PROVIDER_LIFECYCLE_STOPPED,
}
_VALUES = {
    StateValue.TRUE: catalog_pb2.STATE_VALUE_TRUE,
    StateValue.FALSE: catalog_pb2.STATE_VALUE_FALSE,
    StateValue.UNKNOWN: catalog_pb2.STATE_VALUE_UNKNOWN,
}


class CatalogServicer(catalog_pb2_grpc.CatalogServiceServicer):
    """Shows operators what was configured and what became of it."""

    def __init__(
        self,
        host: ProviderHost,
        profiles: Mapping[str, Sequence[str]],
        store: Store,
        problems: Callable[[ProviderStatus], Sequence[str]],
        restart: ProviderRestart,
    ) -> None:
        """Serve the catalogue.

        Args:
            host: Where snapshots come from.
            profiles: Provider name to the profiles that select it.
            store: Where bindings are read.
            problems: Says of a provider which of its profiles can run nothing, and why.
            restart: Starts a provider anew.
        """
        self._host = host
        self._profiles = profiles
        self._store = store
        self._problems = problems
        self._restart = restart

    async def ListProviders(  # noqa: N802 - named by the contract
        self, request: catalog_pb2.ListProvidersRequest, context: Any
    ) -> catalog_pb2.ListProvidersResponse:
        """Return every configured provider."""
        return catalog_pb2.ListProvidersResponse(
            providers=[self._provider(status) for status in self._host.statuses()]
        )

    async def GetProvider(  # noqa: N802 - named by the contract
        self, request: catalog_pb2.GetProviderRequest, context: Any
    ) -> catalog_pb2.GetProviderResponse:
        """Explain one provider."""
        status = self._status(request.name)
        posture = status.posture
        return catalog_pb2.GetProviderResponse(
            provider=self._provider(status),
            stages=[
                catalog_pb2.AdmissionStage(stage=item.stage.value, passed=item.passed, detail=item.detail)
                for item in status.stages
            ],
            claims=[f"{claim.name}: {stated(claim)}" for claim in posture.claims] if posture else [],
            notes=posture.notes if posture else [],
            log=status.log,
            run_uid=posture.run_uid if posture else None,
            shares_gateway_user=posture is not None and posture.shares_gateway_user,
        )

    async def RestartProvider(  # noqa: N802 - named by the contract
        self, request: catalog_pb2.RestartProviderRequest, context: Any
    ) -> catalog_pb2.RestartProviderResponse:
        """Start one provider anew."""
        status = self._status(request.name)
        await self._restart.request(caller(), status.name, status.lifecycle)
        return catalog_pb2.RestartProviderResponse(provider=self._provider(status))

    def _status(self, name: str) -> ProviderStatus:
        if not 1 <= len(name.encode()) <= 64:
            raise InvalidRequest("name", "must have 1 to 64 bytes")
        status = next((item for item in self._host.statuses() if item.name == name), None)
        if status is None:
            raise NotFound("provider", name)
        return status

    async def ListBindings(  # noqa: N802 - named by the contract
        self, request: catalog_pb2.ListBindingsRequest, context: Any
    ) -> catalog_pb2.ListBindingsResponse:
        """Page through bindings; the token is the last id of the page before."""
        size = convert.page_size(request.page_size, default=50, maximum=200)
        before = BindingId.parse(request.page_token, "page_token") if request.page_token else ""
        found = await self._store.bindings(before, size + 1)
        more = len(found) > size
        return catalog_pb2.ListBindingsResponse(
            bindings=[_binding(item) for item in found[:size]],
            next_page_token=found[size - 1].binding.binding_id if more else "",
        )

    def _provider(self, status: ProviderStatus) -> catalog_pb2.Provider:
        descriptor = status.descriptor
        return catalog_pb2.Provider(
            name=status.name,
            kind=status.kind,
            provider_id=descriptor.provider_id if descriptor else "",
            implementation_version=str(descriptor.implementation_version) if descriptor else "",
            contract=status.contract,
            lifecycle=_LIFECYCLES[status.lifecycle],
            states=[
                catalog_pb2.ProviderState(
                    state=state.name.value, value=_VALUES[state.value], reason=state.reason
                )
                for state in status.states
            ],
            reason=status.reason,
            instance_id=status.instance_id,
            profiles=self._profiles.get(status.name, ()),
            profile_problems=self._problems(status),
            unverified_claims=unverified(status.posture) if status.posture else (),
            trusts_claims=status.trust_claims,
        )


def _binding(item: BoundOperation) -> catalog_pb2.Binding:
    binding, candidate = item.binding, item.binding.candidate
    return catalog_pb2.Binding(
        binding_id=binding.binding_id,
        kind=candidate.kind,
        provider=candidate.provider,
        provider_id=candidate.provider_id,
        profile=candidate.profile,
        contract=f"{candidate.kind} {candidate.contract_major}.{candidate.contract_minor}",
        contract_digest=candidate.contract_digest,
        implementation_version=candidate.implementation_version,
        artifact_digest=candidate.artifact_digest,
        config_digest=candidate.config_digest,
        instance_id=candidate.instance_id,
        operation_id=binding.operation_id,
        created_at=convert.timestamp(item.created_at),
    )
