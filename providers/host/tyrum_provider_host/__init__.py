"""The gateway's side of the provider protocol: launch, handshake, admission, supervision, typed clients.

Contract: docs/contracts/control-plane.md. Everything a caller needs is exported here; nothing exported shows
a wire message.
"""

import os

# Must be set before grpc is imported: its fork handlers kill children of a process with live channels.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from tyrum_provider_host.agreement import SecretUnresolved
from tyrum_provider_host.contracts import (
    Cardinality,
    DeploymentMode,
    KindContract,
    Trust,
    packaged_contracts,
)
from tyrum_provider_host.descriptor import Descriptor, SecretSlot
from tyrum_provider_host.errors import (
    CallError,
    Capacity,
    Conflict,
    Effect,
    HostSetupError,
    InvalidRequest,
    NotFound,
    NotOffered,
    OutcomeUnknown,
    PreconditionFailed,
    ProviderBug,
    ProviderError,
    ProviderUnavailable,
    Transient,
    Unauthenticated,
    WaitExpired,
)
from tyrum_provider_host.host import ProviderHost
from tyrum_provider_host.isolation import IsolationClient
from tyrum_provider_host.isolation_types import (
    Claim,
    ClaimStatus,
    EndCause,
    FileReference,
    NeverStarted,
    OperationContext,
    OutputChunk,
    OutputStream,
    Posture,
    Process,
    ProcessLimits,
    ProcessPage,
    ProcessResult,
    ProcessSpec,
    ProcessState,
    StreamSummary,
    Workspace,
)
from tyrum_provider_host.launch import Exit
from tyrum_provider_host.rejection import Stage, StageResult
from tyrum_provider_host.spec import (
    ProviderSpec,
    RestartPolicy,
    Secret,
    SecretSource,
    SpecError,
    TimeBounds,
)
from tyrum_provider_host.states import SixStates, State, StateName, StateValue
from tyrum_provider_host.status import ExitNotice, Lease, Lifecycle, ProviderStatus

__all__ = [
    "CallError",
    "Capacity",
    "Cardinality",
    "Claim",
    "ClaimStatus",
    "Conflict",
    "DeploymentMode",
    "Descriptor",
    "Effect",
    "EndCause",
    "Exit",
    "ExitNotice",
    "FileReference",
    "HostSetupError",
    "InvalidRequest",
    "IsolationClient",
    "KindContract",
    "Lease",
    "Lifecycle",
    "NeverStarted",
    "NotFound",
    "NotOffered",
    "OperationContext",
    "OutcomeUnknown",
    "OutputChunk",
    "OutputStream",
    "Posture",
    "PreconditionFailed",
    "Process",
    "ProcessLimits",
    "ProcessPage",
    "ProcessResult",
    "ProcessSpec",
    "ProcessState",
    "ProviderBug",
    "ProviderError",
    "ProviderHost",
    "ProviderSpec",
    "ProviderStatus",
    "ProviderUnavailable",
    "RestartPolicy",
    "Secret",
    "SecretSlot",
    "SecretSource",
    "SecretUnresolved",
    "SixStates",
    "SpecError",
    "Stage",
    "StageResult",
    "State",
    "StateName",
    "StateValue",
    "StreamSummary",
    "TimeBounds",
    "Transient",
    "Trust",
    "Unauthenticated",
    "WaitExpired",
    "Workspace",
    "packaged_contracts",
]
