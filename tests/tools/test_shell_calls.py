"""Shell text as a call: what is shown and fixed of it, and that it runs as it was judged."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.tools.places import Bench, bench, script
from tests.tools.test_execution import execution, run
from tyrum_gateway.domain.states import CallState
from tyrum_provider_host.host import ProviderHost

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def real(spawning: ProviderHost, tmp_path: Path) -> Bench:
    """A tool whose calls really run."""
    return bench(spawning, tmp_path)


def sha256(path: Path) -> str:
    """Digest a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_one_literal_command_is_the_call_with_its_words(place: Bench) -> None:
    """Given as text it has the same target, subject and run, and a person still sees the text."""
    (place.workspace / "f").write_text("x", encoding="utf-8")
    text = await place.shell("head  -n 1 'f'")
    words = await place.prepare(argv=["head", "-n", "1", "f"])
    assert (text.target, text.run) == (words.target, words.run)
    assert text.subject.digest == words.subject.digest
    assert "given as\n  | head  -n 1 'f'" in text.subject.summary
    assert "given as" not in words.subject.summary
    assert "`shell`: no program `no-such` in" in await place.problem({"shell": "no-such x"})


async def test_a_list_is_fixed_with_all_its_programs_and_files(place: Bench) -> None:
    """Every program that bash will start, and every file that an argument names, is part of the digest."""
    first, second = script(place.programs / "first"), script(place.programs / "second")
    (place.workspace / "f").write_text("x", encoding="utf-8")
    prepared = await place.shell("first f | second; first")
    assert prepared.run is not None
    assert prepared.run.argv[-2:] == ("--", "first f | second; first")
    assert [(item.path, item.sha256) for item in prepared.run.operands] == [
        (str(first), sha256(first)),
        (str(second), sha256(second)),
        (f"{place.identity.path}/f", sha256(place.workspace / "f")),
    ]
    assert [(item.program, item.argv) for item in prepared.target.commands] == [
        (str(first), ("first", "f")),
        (str(second), ("second",)),
        (str(first), ("first",)),
    ]
    assert prepared.target.opaque == ""
    assert f"starts       {first}  (may change after approval: " in prepared.subject.summary
    script(second, "#!/bin/sh\necho other\n")
    assert (await place.shell("first f | second; first")).subject.digest != prepared.subject.digest


async def test_a_program_of_the_workspace_is_fixed_and_left_to_humans(place: Bench) -> None:
    """What the agent could rewrite meanwhile is shown with its content, and rules cannot judge it."""
    own = script(place.workspace / "build")
    prepared = await place.shell("./build && ls")
    assert "`./build` lies in the workspace" in prepared.target.opaque
    assert "unclear      `./build` lies in the workspace" in prepared.subject.summary
    assert prepared.run is not None
    assert (str(own), sha256(own)) in [(item.path, item.sha256) for item in prepared.run.operands]


async def test_programs_and_files_share_the_bound(place: Bench) -> None:
    """Never more than 32 contents are fixed; what is left open is shown."""
    for name in ("p1", "p2"):
        script(place.programs / name)
    names = [f"f{index:02}" for index in range(33)]
    for name in names:
        (place.workspace / name).write_text(name, encoding="utf-8")
    prepared = await place.shell(f"p1 {' '.join(names)} | p2")
    assert prepared.run is not None
    assert len(prepared.run.operands) == 32
    assert len(json.loads(prepared.subject.json)["open_operands"]) == 3


async def test_opaque_text_says_why_to_people(place: Bench) -> None:
    """An approver sees what kept rules from judging the text."""
    prepared = await place.shell("ls > x")
    assert "unclear      `>` (character 4); only the content of what is listed" in prepared.subject.summary


async def test_a_redirection_does_not_free_what_is_seen_of_a_text(place: Bench) -> None:
    """Files and programs of others that commands in opaque text name are fixed like those of a list."""
    files = [script(place.workspace / name) for name in ("build", "job", "data")]
    text = './build --in=data > log; (bash job 2>&1 | tail -n 1) && ls /usr/bin && /usr/bin/wc "$X" data'
    prepared = await place.shell(text)
    assert prepared.target.opaque
    assert prepared.run is not None
    assert {(item.path, item.sha256) for item in prepared.run.operands} == {
        (str(file), sha256(file)) for file in files
    }
    for file in files:
        before = (await place.shell(text)).subject.digest
        script(file, "#!/bin/sh\necho evil\n")
        assert (await place.shell(text)).subject.digest != before


async def test_a_list_really_runs(real: Bench) -> None:
    """Pipes, conditions and sequence work, with the base environment and without any start-up file."""
    (real.workspace / ".bashrc").write_text("exit 9\n", encoding="utf-8")
    script(real.programs / "words", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    script(real.programs / "fails", "#!/bin/sh\nexit 3\n")
    result = await run(
        real, {"shell": "words 'a b' \"c\" | wc -l; fails && words no || words yes\nwords end"}
    )
    assert result.state is CallState.SUCCEEDED
    assert result.process is not None
    assert result.process.stdout.head.decode().split() == ["2", "yes", "end"]


@pytest.mark.parametrize("word", ["-x", "+e", "-", "+", "--", "-c", "--rcfile", "-o"])
async def test_text_that_begins_like_an_option_is_run_as_text(real: Bench, word: str) -> None:
    """Bash looks for a command of that name, instead of obeying or refusing its own option."""
    result = await run(real, {"shell": f"{word} errexit; echo $0 $# $-"})
    assert result.process is not None
    assert f": {word}: command not found" in result.process.stderr.head.decode()
    # Name, no parameters, and the flags that bash has anyway when it runs a text.
    assert result.process.stdout.head == b"bash 0 hBc\n"


@pytest.mark.parametrize("changed", ["first", "second"])
async def test_a_program_of_a_list_that_changed_does_not_run(real: Bench, changed: str) -> None:
    """Whoever exchanges a program between decision and start finds that nothing ran."""
    for name in ("first", "second"):
        script(real.programs / name, f"#!/bin/sh\necho {name} >> ran\n")
    prepared = await real.shell("first && second")
    script(real.programs / changed, "#!/bin/sh\necho evil >> ran\n")
    names = execution(prepared.candidate)
    result = await real.tool.execute(prepared, names)
    assert (result.state, result.subject_changed) == (CallState.FAILED, True)
    assert not (real.workspace / "ran").exists()


async def test_commands_that_only_arguments_name_are_told_to_people(place: Bench) -> None:
    """An approver sees what a shell or wrapper would start, and where that cannot be told."""
    prepared = await place.prepare(argv=["bash", "-c", "rm -r a | xargs -n 1 touch"])
    told = prepared.subject.summary
    for expected in (
        "starts       rm -r a  (named by bash -c; content not fixed)",
        "starts       touch  (named by xargs; content not fixed)",
        "unclear      `xargs` adds arguments that it reads from standard input",
    ):
        assert expected in told
    listed = await place.shell("ls && nice rm b")
    assert "starts       rm b  (named by nice; content not fixed)" in listed.subject.summary
