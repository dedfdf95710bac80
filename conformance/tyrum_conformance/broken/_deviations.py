"""Providers that differ from the good one in one value or one answer: a table instead of a file for each."""

from collections.abc import Callable, Mapping

from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum_conformance.broken._base import Context, GoodProvider, GoodService
from tyrum_conformance.broken._lies import Lying
from tyrum_provider_kit import run
from tyrum_provider_kit.proof import Credentials


class _Overclaiming(GoodService):
    async def GetPosture(  # noqa: N802 - the name on the wire
        self, request: pb.GetPostureRequest, context: Context
    ) -> pb.GetPostureResponse:
        response = await super().GetPosture(request, context)
        for claim in response.claims:
            claim.status = pb.CLAIM_STATUS_PROVED
        return response


class _WithoutWait(GoodService):
    async def WaitProcess(  # noqa: N802 - the name on the wire
        self, request: pb.WaitProcessRequest, context: Context
    ) -> pb.WaitProcessResponse:
        raise NotImplementedError


class _Journalless(GoodService):
    @property
    def journal_id(self) -> str:
        return ""

    @journal_id.setter
    def journal_id(self, value: str) -> None: ...


class _Deviating(GoodProvider):
    def __init__(self, service: type[GoodService]) -> None:
        self._service = service

    def servicer(self) -> GoodService:
        return self._service()


def _serving(service: type[GoodService]) -> Callable[[], int]:
    return lambda: run(_Deviating(service))


def _accept_every_bearer() -> int:
    Credentials.accepts = lambda *_: True  # type: ignore[method-assign]
    return run(GoodProvider())


DEVIATIONS: Mapping[str, Callable[[], int]] = {
    # Every claim is stated as PROVED, and none is enforced.
    "states_every_claim": _serving(_Overclaiming),
    # A required RPC is not there.
    "lacks_wait_process": _serving(_WithoutWait),
    # Configure names no journal.
    "names_no_journal": _serving(_Journalless),
    # Whatever bearer is presented is taken.
    "accepts_every_bearer": _accept_every_bearer,
    # A result that cannot be true: which, is the first argument of the command that it is given.
    "lies": _serving(Lying),
}
"""How each deviates, by name."""
