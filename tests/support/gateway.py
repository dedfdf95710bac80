"""A real gateway for tests: the installed `tyrum serve` as a process with a state directory of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TYRUM = Path(sys.executable).parent / "tyrum"
SHIPPED = (str(TYRUM), "serve")
"""How an operator starts a gateway."""

_START_SECONDS = 40.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.02


class NotServing(Exception):
    """The gateway did not come up; the message ends with its log."""


@dataclass(slots=True)
class RunningGateway:
    """A `tyrum serve` process; `address` and `boot_id` are those of its present start."""

    state_dir: Path
    config: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    boot_id: str = ""
    launcher: tuple[str, ...] = SHIPPED
    """What is started; a test may compose a gateway of its own that takes the same options."""
    patience: float = _START_SECONDS
    """Seconds that a start may take."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def token(self) -> str:
        """The local operator's bearer token."""
        return (self.state_dir / "operator.token").read_text(encoding="ascii").strip()

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What authenticates a call."""
        return (("authorization", f"Bearer {self.token}"),)

    @property
    def log(self) -> str:
        """Everything that the gateway has written so far, over all its starts."""
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    @property
    def log_file(self) -> Path:
        """Where the gateway's output goes."""
        return self.state_dir.parent / f"{self.state_dir.name}.log"

    @property
    def pid(self) -> int:
        """Process id of the present start."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start and wait until the gateway has announced itself.

        Raises:
            NotServing: It ended, or did not announce itself within 40 s.
        """
        self.spawn()
        assert self.process is not None
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise NotServing(f"exit code {self.process.returncode}\n{self.log}")
            if (value := self._announced()) is not None:
                self.address, self.boot_id = value
                return
            time.sleep(_POLL_SECONDS)
        self.kill()
        raise NotServing(f"not serving after {self.patience:.0f} s\n{self.log}")

    def spawn(self) -> None:
        """Start the process, without waiting for anything."""
        command = [*self.launcher, "--state-dir", str(self.state_dir)]
        if self.config is not None:
            command += ["--config", str(self.config)]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=client_environment(self.state_dir) | dict(self.environment),
            )

    def _announced(self) -> tuple[str, str] | None:
        try:
            value = json.loads((self.state_dir / "gateway.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if value.get("pid") != self.pid:
            return None
        return value["address"], value["boot_id"]

    def kill(self) -> None:
        """End it by SIGKILL and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(_STOP_SECONDS)

    def restart(self) -> None:
        """Kill it and start it again on the same state."""
        self.kill()
        self.start()

    def stop(self) -> int:
        """End it by SIGTERM, by SIGKILL when that does not help; return its exit code."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NotServing(f"SIGTERM did not end it within {_STOP_SECONDS:.0f} s\n{self.log}") from None

    def tyrum(
        self, *arguments: str, stdin: str | None = None, timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run the installed command line against this gateway, without a terminal."""
        return subprocess.run(
            [str(TYRUM), *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            env=client_environment(self.state_dir),
            timeout=timeout,
            check=False,
        )


def client_environment(state_dir: Path) -> dict[str, str]:
    """Return an environment with nothing in it but what a command needs to find this gateway."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "XDG_RUNTIME_DIR", "PYTHONPATH")
        if name in os.environ
    }
    scripts = str(TYRUM.parent)
    kept["PATH"] = f"{scripts}:{kept.get('PATH', os.defpath)}"
    return kept | {"TYRUM_STATE_DIR": str(state_dir), "COLUMNS": "200"}


@contextlib.contextmanager
def reaped(*processes: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill what still runs when the block is left: who fails in it must not wait for the others."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            with process:
                pass


@contextlib.contextmanager
def serving(
    directory: Path, config: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[RunningGateway]:
    """Run a gateway with its state below `directory`; it is gone when the block is left."""
    gateway = RunningGateway(directory / "state", config, environment or {})
    directory.mkdir(parents=True, exist_ok=True)
    try:
        gateway.start()
        yield gateway
    finally:
        if gateway.process is not None and gateway.process.poll() is None:
            gateway.stop()
