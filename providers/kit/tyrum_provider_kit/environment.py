"""What the host tells a provider process about its place: five variables, checked before anything starts.

Invariant: a provider with a wrong environment never listens; it names the variable and the reason and exits.
"""

import re
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOCKET = "TYRUM_PROVIDER_SOCKET"
INSTANCE_ID = "TYRUM_PROVIDER_INSTANCE_ID"
STATE_DIR = "TYRUM_PROVIDER_STATE_DIR"
RUNTIME_DIR = "TYRUM_PROVIDER_RUNTIME_DIR"
CONTROL_VERSIONS = "TYRUM_PROVIDER_CONTROL_VERSIONS"

MAX_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path without its terminator

INSTANCE_ID_PATTERN = re.compile(r"inst_[0-9a-z]{26}")
_VERSIONS = re.compile(r"([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?")


class Misconfigured(Exception):
    """The process was started wrongly; the message names the variable or stream and the fix."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a provider instance lives.

    `state_dir` belongs to the provider id and outlives instances; `runtime_dir` belongs to this instance and
    is removed by the host. `provider_name` is the operator's name for the provider, empty until Configure.
    """

    socket: Path
    instance_id: str
    state_dir: Path
    runtime_dir: Path
    control_versions: tuple[int, int]
    provider_name: str = ""


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Read and check the variables.

    Raises:
        Misconfigured: a variable is missing, malformed or points to something unusable.
    """
    path = _absolute(variables, SOCKET)
    length = len(str(path).encode())
    if length > MAX_SOCKET_PATH_BYTES:
        raise Misconfigured(f"{SOCKET} is {length} bytes long; a socket path holds {MAX_SOCKET_PATH_BYTES}")
    if not path.parent.is_dir():
        raise Misconfigured(f"{SOCKET} lies in {path.parent}, which is not a directory")

    instance_id = _required(variables, INSTANCE_ID)
    if not INSTANCE_ID_PATTERN.fullmatch(instance_id):
        raise Misconfigured(f"{INSTANCE_ID} must be `inst_` and 26 lower-case letters or digits")

    versions = _VERSIONS.fullmatch(_required(variables, CONTROL_VERSIONS))
    if versions is None:
        raise Misconfigured(f"{CONTROL_VERSIONS} must be MIN-MAX, such as 1-1")
    low = int(versions[1])
    high = int(versions[2] or low)
    if low > high:
        raise Misconfigured(f"{CONTROL_VERSIONS} must be MIN-MAX with MIN not above MAX")

    return Environment(
        socket=path,
        instance_id=instance_id,
        state_dir=_directory(variables, STATE_DIR),
        runtime_dir=_directory(variables, RUNTIME_DIR),
        control_versions=(low, high),
    )


def free_socket_path(path: Path) -> None:
    """Remove the socket file that a killed process left behind, and nothing else.

    gRPC would silently take over the path of a living server, so the path is tried first.

    Raises:
        Misconfigured: someone listens on the path, or it is not a socket.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Misconfigured(f"{SOCKET}: {path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        attempt.settimeout(1.0)
        try:
            attempt.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise Misconfigured(f"{SOCKET}: {path} is in use ({error.strerror or error})") from error
    raise Misconfigured(f"{SOCKET}: another process listens on {path}")


def _required(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name, "")
    if not value:
        raise Misconfigured(f"{name} is not set; providers are started by a Tyrum host, not by hand")
    return value


def _absolute(variables: Mapping[str, str], name: str) -> Path:
    path = Path(_required(variables, name))
    if not path.is_absolute():
        raise Misconfigured(f"{name} must be an absolute path")
    return path


def _directory(variables: Mapping[str, str], name: str) -> Path:
    path = _absolute(variables, name)
    if not path.is_dir():
        raise Misconfigured(f"{name}: {path} is not a directory")
    return path
