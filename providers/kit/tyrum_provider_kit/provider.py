"""What an author writes: the members the kit calls, in the order of a provider's life."""

from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

import grpc.aio

from tyrum_provider_kit.definition import ProviderDefinition
from tyrum_provider_kit.environment import Environment
from tyrum_provider_kit.report import ProbeReport
from tyrum_provider_kit.schema import Violation


class Provider(Protocol):
    """A provider of one kind. Nothing here runs concurrently with itself, except `probe` and `check`."""

    @property
    def definition(self) -> ProviderDefinition:
        """What the provider is; constant for the life of the process."""
        ...

    @property
    def service_name(self) -> str:
        """Full name of the kind's domain service, such as `tyrum.isolation.v1.IsolationService`."""
        ...

    @property
    def starting_methods(self) -> Set[str]:
        """Short names of the RPCs that start work.

        They are refused while draining and they alone count against `max_concurrent_operations`, so that
        reading and waiting never starve a start. A provider whose operations outlive the call bounds those
        itself, with CONCURRENCY_LIMIT.
        """
        ...

    def add_services(self, server: grpc.aio.Server) -> None:
        """Register the domain servicer. Its handlers are `async` and fail by raising `ServiceError` only."""
        ...

    def check(self, config: Mapping[str, Any], slots: Set[str]) -> Sequence[Violation]:
        """Find what the JSON Schema cannot express, without effects; `slots` are the secrets to come."""
        ...

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str | None:
        """Apply a configuration that has passed schema and `check`, within 10 s.

        It succeeds once in the life of a process. When it raises, it leaves nothing behind and may be
        called again.

        Returns:
            Identity of the journal from which the provider resolves operations, such as `journal_identity`
            gives; None for a kind that resolves none.
        """
        ...

    async def probe(self, *, deep: bool) -> ProbeReport:
        """Report readiness within 1 s, without effects; `deep` asks to test dependencies anew.

        Called before Configure too.
        """
        ...

    async def drain(self) -> int:
        """Stop taking new work and return how many operations outlive their calls and still run.

        Called any number of times, configured or not, and always before `shutdown`.
        """
        ...

    async def shutdown(self, grace: float) -> None:
        """End what runs: `grace` seconds to finish, then cancelled; called once, configured or not."""
        ...
