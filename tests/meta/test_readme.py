"""The README is right: everything it tells a newcomer to type runs, in its order, and shows what it says."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import markdown
from tests.support.gateway import NotServing, RunningGateway, client_environment
from tests.support.repository import ROOT, tracked
from tests.support.terminal import Terminal, on_terminal
from tyrum_conformance.broken._deviations import DEVIATIONS

GATE = re.compile(r"apt-get |make (demo|test)$")
"""What the gate runs instead: prerequisites, demonstration and suite."""
TYRUM = ".venv/bin/tyrum"
QUESTION = "Approve exactly this? [y/n/a] "
SHOWN = {
    "approvals list": "/usr/bin/uname",
    "providers explain local": "NOT_ENFORCED",
    "doctor": "ok    gateway: ",
    "audit verify": "intact",
    "config validate examples/quickstart.yaml": "examples/quickstart.yaml: valid",
}
"""What a reader looks for in the output of a command."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line to type, and what the README says about it."""

    command: str
    remark: str


def lines(page: markdown.Page) -> Iterator[Line]:
    """List what is to be typed."""
    for block in page.blocks:
        if block.language == "console":
            for line in block.code.splitlines():
                command, _, remark = line.partition("  #")
                yield Line(command.strip(), remark.strip())


@dataclass(slots=True)
class Newcomer:
    """Types lines in the current directory, one gateway at a time."""

    state_dir: Path
    processes: ExitStack
    gateway: RunningGateway | None = None
    asked: dict[str, Terminal] = field(default_factory=dict)
    """Chats that wait for an answer, by approval."""

    def type(self, line: Line) -> None:
        """Do one line.

        Raises:
            AssertionError: It does not do what the README says, or nothing here knows how to type it.
        """
        words = shlex.split(line.command)
        assert words[0] == TYRUM, f"no way to type `{line.command}`"
        match words[1:]:
            case ["serve", *_]:
                self._serve(words)
            case ["chat"]:
                self._talk(words, line.remark)
            case ["chat", _]:
                self._ask(words, line.remark)
            case arguments:
                shown = SHOWN.get(" ".join(arguments))
                assert shown, f"nothing is known about the output of `{line.command}`"
                assert shown in self.run(words)

    def leave(self) -> None:
        """Answer what waits, from elsewhere; each chat then ends well, and so does the gateway."""
        for approval, terminal in self.asked.items():
            self.run([TYRUM, "approvals", "approve", approval])
            assert terminal.end() == 0
            assert "> Linux" in terminal.screen
        self.asked.clear()
        if self.gateway is not None:
            assert self.gateway.stop() == 0

    def _serve(self, words: list[str]) -> None:
        self.leave()
        self.gateway = RunningGateway(self.state_dir, launcher=tuple(words))
        self.processes.callback(self.gateway.kill)
        self.gateway.start()

    def _talk(self, words: list[str], remark: str) -> None:
        assert remark == "interactive"
        terminal = self._on_terminal(words)
        terminal.wait_for("> ")
        terminal.type("hello\n")
        terminal.wait_for("offline model")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.end() == 0

    def _ask(self, words: list[str], remark: str) -> None:
        assert "asks you y/n" in remark
        terminal = self._on_terminal(words)
        approval = re.search(r"appr_\w{26}", terminal.wait_for(QUESTION))
        assert approval, terminal.screen
        self.asked[approval[0]] = terminal

    def _on_terminal(self, words: list[str]) -> Terminal:
        environment = client_environment(self.state_dir) | {"TERM": "xterm", "NO_COLOR": "1"}
        return self.processes.enter_context(on_terminal(words, environment))

    def run(self, words: list[str], code: int = 0) -> str:
        """Run a command that ends by itself; return everything that it says."""
        run = subprocess.run(
            words,
            env=client_environment(self.state_dir),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == code, run.stderr + run.stdout
        return run.stdout + run.stderr


@pytest.fixture
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Newcomer]:
    """Somebody in a checkout, with the environment of the tests as `.venv` and no state yet."""
    checkout = tmp_path / "tyrum"
    checkout.mkdir()
    for name in {path.parts[0] for path in tracked()}:
        (checkout / name).symlink_to(ROOT / name)
    (checkout / ".venv").symlink_to(Path(sys.executable).parent.parent)
    monkeypatch.chdir(checkout)
    with ExitStack() as processes:
        yield Newcomer(tmp_path / "state", processes)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_the_readme_tells_to_type_works(newcomer: Newcomer) -> None:
    """Every command of the README runs as it stands, in order, and shows what is said about it."""
    typed = [line for line in lines(markdown.read(Path("README.md"))) if not GATE.match(line.command)]
    assert len(typed) >= len(SHOWN) + 4
    for line in typed:
        newcomer.type(line)
    newcomer.leave()


@pytest.mark.parametrize(
    "line",
    [
        Line("rm -r state", ""),
        Line(f"{TYRUM} version", ""),
        Line(f"{TYRUM} chat", "asks you"),
        Line(f"{TYRUM} serve --gone", ""),
    ],
)
def test_a_line_that_is_not_as_it_says_is_noticed(newcomer: Newcomer, line: Line) -> None:
    """Another program, output nobody looks at, a wrong remark and a wrong option each fail."""
    with pytest.raises((AssertionError, NotServing)):
        newcomer.type(line)


def test_the_prerequisites_are_those_of_the_makefile() -> None:
    """The README's line for Debian is the hint that `make` gives when something is missing."""
    (line,) = [
        line for line in lines(markdown.read(Path("README.md"))) if line.command.startswith("apt-get install")
    ]
    hints = re.findall(r"hint: (apt-get [^']+)'", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert hints
    assert {line.command} == set(hints)


def test_every_guide_is_run_by_a_test() -> None:
    """A guide with something to type in it has a test of its own that reads and runs it."""
    guides = [page for page in markdown.pages() if page.path.parent == Path("docs/guides")]
    assert guides
    for guide in guides:
        if any(block.language in {"sh", "console"} for block in guide.blocks):
            tests = [path for path in tracked() if path.name.startswith("test_") and path.suffix == ".py"]
            name = guide.path.as_posix()
            assert any(name in (ROOT / path).read_text(encoding="utf-8") for path in tests), name


def test_a_provider_author_finds_what_the_page_names(newcomer: Newcomer, tmp_path: Path) -> None:
    """`tyrum proto export DIR` holds every contract and vector that providers/README.md refers to."""
    newcomer.run([TYRUM, "proto", "export", str(tmp_path / "out")])
    page = markdown.read(Path("providers/README.md"))
    named = [code for code in page.code if re.fullmatch(r"tyrum/[\w/.-]+\.\w+", code)]
    assert len(named) >= 4
    assert [name for name in named if not (tmp_path / "out" / name).is_file()] == []


def test_the_broken_providers_are_listed(newcomer: Newcomer) -> None:
    """`python -m tyrum_conformance.broken` lists its providers, and `good` is one of them."""
    words = ["python", "-m", "tyrum_conformance.broken"]
    assert " ".join(words) in list(markdown.read(Path("providers/README.md")).code)
    listed = newcomer.run([f".venv/bin/{words[0]}", *words[1:]], code=64)
    names = [line.strip() for line in listed.splitlines() if line.startswith("  ")]
    assert "good" in names
    for name in set(names) - DEVIATIONS.keys():
        assert (ROOT / f"conformance/tyrum_conformance/broken/{name}.py").is_file()
