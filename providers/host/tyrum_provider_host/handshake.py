"""Who is there and what it speaks: proof first, then versions and digest.

Invariant: the bearer is derived and sent only after the proof over a fresh nonce was verified.
"""

from tyrum_provider_host import proof
from tyrum_provider_host.contracts import CONTROL_VERSION_MAX, CONTROL_VERSION_MIN, KindContract
from tyrum_provider_host.control_client import ControlClient, HandshakeAnswer
from tyrum_provider_host.errors import CallError, Transient
from tyrum_provider_host.rejection import AUTHOR, OPERATOR, Rejected, Stage


async def greet(
    client: ControlClient, contract: KindContract, *, instance_id: str, token: bytes, host_version: str
) -> HandshakeAnswer:
    """Perform the handshake and verify the proof.

    Raises:
        Rejected: the provider did not answer, found no common version, or does not hold the token.
    """
    nonce = proof.new_nonce()
    try:
        answer = await client.handshake(
            (contract,), instance_id=instance_id, nonce=nonce, host_version=host_version
        )
    except CallError as error:
        if error.reason == "CONTRACT_INCOMPATIBLE":
            raise Rejected(
                Stage.CONTRACT,
                "the provider speaks no contract that this host admits",
                expected=f"{contract.label} ({contract.digest}),"
                f" control {CONTROL_VERSION_MIN}-{CONTROL_VERSION_MAX}",
                found=", ".join(f"{key}={value}" for key, value in error.metadata.items()) or error.detail,
                action=f"{OPERATOR}: install a provider built for this contract, or upgrade the older side",
            ) from None
        raise Rejected(
            Stage.HANDSHAKE,
            f"the handshake failed: {error}",
            action=f"{AUTHOR}: serve tyrum.provider.v1.ProviderControlService/Handshake as its contract says",
            transient=error.passing,
            passes=isinstance(error, Transient),
        ) from None
    expected = proof.proof(
        token,
        nonce=nonce,
        instance_id=instance_id,
        kind=answer.kind,
        control_version=answer.control_version,
        contract_version=f"{answer.major}.{answer.minor}",
        contract_digest=answer.digest,
    )
    if not proof.proves(expected, answer.proof):
        raise Rejected(
            Stage.HANDSHAKE,
            "the proof is wrong: whoever listens does not hold this instance's token, or computes it wrongly",
            expected=f"a proof with fingerprint {proof.fingerprint(expected)}",
            found=f"{len(answer.proof)} bytes with fingerprint {proof.fingerprint(answer.proof)}",
            action=f"{AUTHOR}: compare with tyrum/contracts/handshake-vectors.json",
        )
    return answer


def agree(answer: HandshakeAnswer, contract: KindContract) -> None:
    """Check the provider's choice against what was offered.

    Raises:
        Rejected: control version, kind, version or digest is not the offered one.
    """
    if not CONTROL_VERSION_MIN <= answer.control_version <= CONTROL_VERSION_MAX:
        raise Rejected(
            Stage.CONTRACT,
            "the provider chose a control version that was not offered",
            expected=f"{CONTROL_VERSION_MIN} to {CONTROL_VERSION_MAX}",
            found=str(answer.control_version),
            action=f"{AUTHOR}: choose the highest version within the offered range",
        )
    if answer.kind != contract.kind:
        raise Rejected(
            Stage.CONTRACT,
            "the provider is of another kind",
            expected=contract.kind,
            found=answer.kind,
            action=f"{OPERATOR}: configure it under its own kind",
        )
    if (answer.major, answer.minor) != (contract.major, contract.minor):
        older = (answer.major, answer.minor) < (contract.major, contract.minor)
        raise Rejected(
            Stage.CONTRACT,
            "the provider speaks another version of the contract",
            expected=contract.label,
            found=f"{answer.kind} {answer.major}.{answer.minor}",
            action=f"{OPERATOR}: upgrade the {'provider' if older else 'gateway'}",
        )
    if answer.digest != contract.digest:
        raise Rejected(
            Stage.CONTRACT,
            f"the provider was built from another text of the contract {contract.label}",
            expected=contract.digest,
            found=answer.digest,
            action=f"{OPERATOR}: install provider and gateway built from the same contract files",
        )
