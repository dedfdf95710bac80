"""A scratch root with bash and recording stubs, and a confined worker that runs texts in it.

Invariants: a text is run by an unprivileged user in bounded processes, bytes and time; all programs it can
find are stubs that write down how they were called and do nothing. As root, or where user namespaces are
allowed, there is no network, the scratch root is also the root directory, and the end of the worker ends all
that a text started.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.policy_oracle.rules import NAMES

_WORKER = Path(__file__).with_name("worker.py")
_UIDS = range(61184, 65000)
"""Users of nobody's, of which each sandbox takes its own, so that counting processes counts its own only."""
_NUMBER = count()
_PROCESSES = 64
_SECONDS = 30
"""For one text; generous, as only what hangs may meet it."""

_STUB = """\
#!{root}/shell/bash -p
LC_ALL=C
IFS= read -r -d '' input
{{ printf '%s\\0' "$0" "$#" "$@" "$input"
for descriptor in 3 4 5 6 7 8 9
do {{ : <&$descriptor; }} 2>&- && printf 'descriptor %s\\n' $descriptor
done
export -p
cd -P .
printf 'directory %s\\n' "$PWD"; }} >"{root}/records/$EPOCHREALTIME.$$" || exit 99
name=${{0##*/}}
printf 'out:%s\\n' "$name"
printf 'err:%s\\n' "$name" >&2
exit $(( (${{#name}} + {seed}) % 2 ))
"""
_LISTEN = """\
enable -n {builtins}
command_not_found_handle() {{
  enable printf exit
  LC_ALL=C
  printf '%s\\0' "$1" "$(($# - 1))" "${{@:2}}" "" >"{root}/records/$EPOCHREALTIME.$BASHPID"
  exit $(( (${{#1}} + {seed}) % 2 ))
}}
"""
"""In this bash every command is unknown, and what handles unknown commands writes down its words."""
_SHELL_LEVEL = re.compile(r'^declare -x SHLVL="[12]"\n', re.MULTILINE)
"""One less for a text that is one command, as bash does not wait for that in a process of its own."""
_FILES = {"a.txt": "a\n", "b.txt": "b\n", "-l": "", "show": "", "dir/c.txt": "c\n", "dir/show": ""}
"""So that globs match, and programs lie where a relative path or a `.` in PATH would find them."""


@dataclass(frozen=True, slots=True)
class Call:
    """A program that ran."""

    path: str
    arguments: tuple[str, ...]
    stdin: str
    surroundings: str
    """Open descriptors, environment and working directory, as text to compare."""

    @property
    def name(self) -> str:
        """Its name, without the directory."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Observed:
    """What running a text did. Texts are decoded with surrogateescape."""

    status: int | None
    """Exit code, negative for a signal, None when it did not end in time."""
    left: bool
    """Whether processes were left."""
    calls: tuple[Call, ...]
    """In the order in which they were recorded."""
    stdout: str
    stderr: str
    changed: tuple[str, ...]
    """Files of the workspace that are not as they were."""


def exit_code(name: str, seed: int) -> int:
    """Return what the stub of this name exits with: by its length in bytes."""
    return (len(name.encode(errors="surrogateescape")) + seed) % 2


class Sandbox:
    """One scratch root and its worker; not for use from two threads at once."""

    def __init__(self, directory: Path, *, seed: int = 0) -> None:
        self.root = directory.resolve() / "root"
        self.seed = seed
        self._uid = _UIDS[(os.getpid() * 8 + next(_NUMBER)) % len(_UIDS)] if os.geteuid() == 0 else None
        self._build()
        self._worker: subprocess.Popen[str] | None = None
        self.confinement = ""
        """How texts are confined here, to be shown."""
        self.ordinary = ""
        """What surrounds a program that was started plainly."""

    @property
    def programs(self) -> Path:
        """The directory of the stubs."""
        return self.root / "programs"

    @property
    def workspace(self) -> Path:
        """The working directory of texts."""
        return self.root / "workspace"

    def __enter__(self) -> Self:
        """Start the worker; what surrounds one known command is what must surround every other."""
        prefix = _namespaces()
        self._worker = subprocess.Popen(
            [*prefix, sys.executable, "-I", "-S", "-B", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"},
        )
        try:
            self._confine("own network and process namespaces" if prefix else "no namespaces")
            self.ordinary = self._surroundings()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the worker, and with its namespace all that it ran."""
        self._end()

    def _confine(self, namespaces: str) -> None:
        processes = _PROCESSES if self._uid is not None else _PROCESSES + _own_threads()
        confined = self._ask({"root": str(self.root), "uid": self._uid, "processes": processes})
        place = "own root directory" if confined["chroot"] else "scratch directory"
        user = self._uid if self._uid is not None else os.getuid()
        self.confinement = f"uid {user}, {place}, {namespaces}"

    def _surroundings(self) -> str:
        """Run a known command, and return what surrounds it."""
        canary = self.run("show canary")
        if [(call.path, call.arguments) for call in canary.calls] != [(f"{self.programs}/show", ("canary",))]:
            raise RuntimeError(f"bash does not run in the scratch root ({self.confinement}): {canary}")
        return canary.calls[0].surroundings

    def _end(self) -> None:
        worker = self._worker
        if worker is not None and worker.stdin and worker.stdout:
            worker.stdin.close()
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            worker.stdout.close()

    def run(self, text: str) -> Observed:
        """Run a text as the product runs shell text, its programs being stubs."""
        return self._observe({"text": text, "seconds": _SECONDS})

    def words(self, text: str) -> Observed:
        """Run a text in a bash without programs and builtins that only says which words each command has."""
        environment = {"PATH": f"{self.root}/nothing", "BASH_ENV": f"{self.root}/listen"}
        return self._observe({"text": text, "seconds": _SECONDS, "env": environment})

    def _observe(self, job: Mapping[str, Any]) -> Observed:
        answer = self._ask(job)
        return Observed(
            status=answer["status"],
            left=answer["left"],
            calls=tuple(_call(_decoded(record)) for record in answer["records"]),
            stdout=_decoded(answer["stdout"]),
            stderr=_decoded(answer["stderr"]),
            changed=tuple(answer["changed"]),
        )

    def _ask(self, message: Mapping[str, Any]) -> Any:
        worker = self._worker
        assert worker is not None
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(message) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended with {worker.wait()} at {message!r}")
        return json.loads(line)

    def _build(self) -> None:
        for name in ("programs", "workspace", "records", "shell", "nothing"):
            (self.root / name).mkdir(parents=True)
        # Inside, too, the scratch root is found under its path outside.
        inside = self.root / str(self.root).lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.symlink_to(os.path.relpath(self.root, inside.parent))
        bash = _bash()
        shutil.copy(bash, self.root / "shell/bash")
        for library in _libraries(bash):
            (self.root / library.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, self.root / library.lstrip("/"))
        (self.root / "empty").touch()
        (self.root / "dev").mkdir()
        (self.root / "dev/null").touch()
        stub = _STUB.format(root=self.root, seed=self.seed)
        for path in (*(f"programs/{name}" for name in NAMES), *(f"workspace/{name}" for name in _FILES)):
            (self.root / path).parent.mkdir(exist_ok=True)
            content = stub if Path(path).name in NAMES else _FILES[path.partition("/")[2]]
            (self.root / path).write_text(content)
            (self.root / path).chmod(0o755 if content is stub else 0o644)
        listen = _LISTEN.format(root=self.root, seed=self.seed, builtins=" ".join(_builtins(bash)))
        (self.root / "listen").write_text(listen)
        if self._uid is not None:
            for owned in (self.root / "records", self.workspace, *self.workspace.rglob("*")):
                os.chown(owned, self._uid, self._uid)
            # The directories above belong to whoever runs the tests; a confined user passes through them.
            self.root.chmod(0o755)


@cache
def _namespaces() -> tuple[str, ...]:
    """Return the command that gives the worker namespaces, or none where that is not allowed."""
    commands = [["unshare", "--net", "--pid", "--fork", "--kill-child"]]
    if os.geteuid() != 0:
        commands = [["unshare", "--user", "--map-root-user", *commands[0][1:]]]
    for command in commands:
        try:
            done = subprocess.run([*command, "true"], capture_output=True, check=False, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return tuple(command)
    return ()


def _own_threads() -> int:
    """Count what RLIMIT_NPROC counts already: this user's threads."""
    own = os.getuid()
    return sum(
        process.info["num_threads"] or 0
        for process in psutil.process_iter(["uids", "num_threads"])
        if process.info["uids"] and process.info["uids"].real == own
    )


def _bash() -> str:
    found = shutil.which("bash")
    if found is None:
        raise RuntimeError("there is no bash to compare with")
    return os.path.realpath(found)


def _libraries(program: str) -> list[str]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, timeout=30).stdout
    return re.findall(r"(?:^|=>)\s*(/\S+)", listed, re.MULTILINE)


@cache
def _builtins(bash: str) -> tuple[str, ...]:
    listed = subprocess.run(
        [bash, "--noprofile", "--norc", "-c", "compgen -b"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return tuple(name for name in listed.stdout.split() if name != "enable")


def _call(record: str) -> Call:
    path, *parts = record.split("\0")
    number = int(parts[0]) if parts and parts[0].isdigit() else 0
    if len(parts) < number + 3:
        return Call(path, tuple(parts[1:]), "", "ended while it wrote this down")
    return Call(
        path, tuple(parts[1 : number + 1]), parts[number + 1], _SHELL_LEVEL.sub("", parts[number + 2])
    )


def _decoded(content: str) -> str:
    return base64.b64decode(content).decode(errors="surrogateescape")
