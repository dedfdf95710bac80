"""Preparing resolves exactly what would run, without any effect."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.tools.places import Bench, bench, script
from tests.tools.providers import running
from tyrum_gateway.domain.errors import ProviderUnavailable
from tyrum_gateway.domain.policy import Effect
from tyrum_gateway.domain.process import RunLimits
from tyrum_gateway.tools.isolation import Boundary
from tyrum_gateway.tools.run_subject import Shown, subject_of
from tyrum_provider_host import ProviderSpec
from tyrum_provider_host.host import ProviderHost

pytestmark = pytest.mark.asyncio(loop_scope="module")


def sha256(path: str | Path) -> str:
    """Digest a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def real(path: str) -> str:
    """Resolve links."""
    return os.path.realpath(path)


async def test_program_is_found_in_the_operators_directories(place: Bench) -> None:
    """A plain name is looked for in the profile's directories in order, and identified by its content."""
    tool = script(place.programs / "uname", "#!/bin/sh\necho mine\n")
    prepared = await place.prepare(argv=["uname", "-a"])
    assert prepared.run is not None
    assert prepared.run.program.path == str(tool)
    assert prepared.run.program.sha256 == sha256(tool)
    assert prepared.run.argv == ("uname", "-a")
    assert prepared.target.program == str(tool)
    assert prepared.target.argv == ("uname", "-a")
    assert prepared.target.effect is Effect.STATE_CHANGING


async def test_path_variable_of_the_call_does_not_change_resolution(place: Bench) -> None:
    """PATH in `env` reaches the command, and never the kernel's search."""
    script(place.workspace / "bin" / "uname")
    run = await place.run_of(argv=["uname"], env={"PATH": str(place.workspace / "bin")})
    assert run.program.path == real(shutil.which("uname", path="/usr/bin:/bin") or "")
    assert run.env["PATH"] == str(place.workspace / "bin")


async def test_linked_program_is_judged_by_what_it_leads_to(place: Bench) -> None:
    """A link, in the operator's directories or in the workspace, is the real file, for policy too."""
    own = script(place.programs / "real-tool")
    (place.programs / "alias").symlink_to(own)
    (place.workspace / "innocent").symlink_to("/usr/bin/env")
    assert (await place.prepare(argv=["alias"])).target.program == str(own)
    prepared = await place.prepare(argv=["./innocent"])
    assert prepared.target.program == real("/usr/bin/env")
    assert prepared.run is not None
    assert prepared.run.argv == ("./innocent",)


async def test_relative_program_is_looked_for_in_cwd(place: Bench) -> None:
    """A path with a slash starts at the working directory, and is never searched for."""
    own = script(place.workspace / "sub" / "build.sh")
    for name in ("./build.sh", "../sub/build.sh"):
        assert (await place.run_of(argv=[name], cwd="sub")).program.path == str(own)
    assert "no executable file" in await place.problem({"argv": ["./build.sh"]})


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no-such-program-here", "no program `no-such-program-here` in"),
        ("/no/such", "no executable file"),
        ("/usr/bin", "no executable file"),
        ("/etc/passwd", "no executable file"),
        ("./plain", "no executable file"),
        ("./dangling", "no executable file"),
        ("./loop", "no executable file"),
        ("./fifo", "no executable file"),
        ("./odd", "no executable file"),
        ("../outside", "outside the workspace"),
        ("x/../../outside", "outside the workspace"),
        ("..", "is a directory"),
        (".", "is a directory"),
        ("", "names no program"),
    ],
)
async def test_what_cannot_run_is_rejected(place: Bench, name: str, problem: str) -> None:
    """Only an executable regular file runs; everything else is rejected naming argv[0]."""
    (place.workspace / "plain").write_text("text", encoding="utf-8")
    (place.workspace / "dangling").symlink_to("nowhere")
    (place.workspace / "loop").symlink_to("loop")
    os.mkfifo(place.workspace / "fifo", 0o755)
    script(place.workspace / os.fsdecode(b"\xff"))
    (place.workspace / "odd").symlink_to(os.fsdecode(b"\xff"))
    script(place.workspace.parent / "outside")
    said = await place.problem({"argv": [name]})
    assert problem in said
    assert "argv[0]" in said


async def test_changed_program_changes_the_subject(place: Bench) -> None:
    """The digest follows the content, also when size and modification time stay the same."""
    tool = script(place.programs / "tool", "#!/bin/sh\necho a\n")
    first = await place.prepare(argv=["tool"])
    async with asyncio.timeout(50):
        while place.tool._digests.known(tool.stat()) is None:  # it is remembered once it is old enough
            await asyncio.sleep(0.01)
            assert (await place.prepare(argv=["tool"])).subject == first.subject
    script(tool, "#!/bin/sh\necho b\n")
    second = await place.prepare(argv=["tool"])
    assert second.run is not None
    assert second.run.program.sha256 == sha256(tool)
    assert second.subject.digest != first.subject.digest


async def test_operands_are_fixed_by_content(place: Bench) -> None:
    """Arguments that name regular files of the workspace are fixed by content, each once; pipes are shown."""
    (place.workspace / "sub").mkdir()
    (place.workspace / "sub" / "a.py").write_text("print(1)", encoding="utf-8")
    outside = place.workspace.parent / "b.py"
    outside.write_text("print(2)", encoding="utf-8")
    (place.workspace / "sub" / "link.py").symlink_to("a.py")
    (place.workspace / "dir-link").symlink_to("sub")
    os.mkfifo(place.workspace / "sub" / "fifo")
    argv = ["cat", "a.py", "./a.py", "../sub/a.py", str(place.workspace / "sub" / "a.py"), "link.py", "fifo"]
    argv += ["../dir-link/a.py", "../../b.py", str(outside), "missing", "", ".", "..", "-n"]
    prepared = await place.prepare(argv=argv, cwd="sub")
    assert prepared.run is not None
    path = f"{place.identity.path}/sub/a.py"
    assert [(operand.path, operand.sha256) for operand in prepared.run.operands] == [(path, sha256(path))]
    pipe = f"{place.identity.path}/sub/fifo"
    assert json.loads(prepared.subject.json)["open_operands"] == [pipe, str(outside.resolve())]


async def test_a_file_behind_a_link_is_fixed_by_content_too(place: Bench) -> None:
    """Whoever changes the file, or leads the link elsewhere, changes the subject."""
    (place.workspace / "real.sh").write_text("echo good", encoding="utf-8")
    (place.workspace / "other.sh").write_text("echo evil", encoding="utf-8")
    link = place.workspace / "link.sh"
    link.symlink_to("real.sh")
    first = await place.prepare(argv=["cat", "link.sh"])
    assert f"{place.identity.path}/real.sh" in first.subject.summary
    link.unlink()
    link.symlink_to("other.sh")
    second = await place.prepare(argv=["cat", "link.sh"])
    assert second.subject.digest != first.subject.digest
    (place.workspace / "other.sh").write_text("echo worse", encoding="utf-8")
    assert (await place.prepare(argv=["cat", "link.sh"])).subject.digest != second.subject.digest
    link.unlink()
    link.symlink_to("/etc/hostname")
    assert "content not fixed" in (await place.prepare(argv=["cat", "link.sh"])).subject.summary


@pytest.mark.parametrize("named", ["./interpreter", "{workspace}/interpreter"])
async def test_a_scripts_own_interpreter_is_fixed_by_content(place: Bench, named: str) -> None:
    """A script that names an interpreter of the workspace stands for the interpreter's content as well."""
    script(place.workspace / "interpreter", "#!/bin/sh\necho good\n")
    script(place.workspace / "job", f"#! {named.format(workspace=place.workspace)} -x\n")
    first = await place.prepare(argv=["./job"])
    assert first.run is not None
    assert [operand.path for operand in first.run.operands] == [f"{place.identity.path}/interpreter"]
    script(place.workspace / "interpreter", "#!/bin/sh\necho evil\n")
    assert (await place.prepare(argv=["./job"])).subject.digest != first.subject.digest


async def test_changed_operand_changes_the_subject(place: Bench) -> None:
    """What an approval shows of a file stands for its content."""
    file = place.workspace / "job.py"
    file.write_text("print(1)", encoding="utf-8")
    first = await place.prepare(argv=["cat", "job.py"])
    file.write_text("print(2)", encoding="utf-8")
    assert (await place.prepare(argv=["cat", "job.py"])).subject.digest != first.subject.digest


async def test_operands_are_bounded_and_what_is_left_open_is_shown(place: Bench) -> None:
    """At most 32 files of 8 MiB are read; the others are named as not fixed, never silently left out."""
    with (place.workspace / "big").open("wb") as big:
        big.truncate((8 << 20) + 1)
    names = [f"f{index:02}" for index in range(33)]
    for name in names:
        (place.workspace / name).write_text(name, encoding="utf-8")
    prepared = await place.prepare(argv=["cat", *names[:9], *(f"--x={name}" for name in names[9:]), "-xbig"])
    assert prepared.run is not None
    assert len(prepared.run.operands) == 32
    left_open = json.loads(prepared.subject.json)["open_operands"]
    assert [Path(path).name for path in left_open] == ["f32", "big"]
    assert prepared.subject.summary.count("content not fixed") == 2


@pytest.mark.parametrize(
    "cwd", ["..", "a/../..", "a/..", "/", "/etc", "link", "a/link", "file", "missing", "a\n"]
)
async def test_cwd_stays_inside_without_links(place: Bench, cwd: str) -> None:
    """The working directory is an existing directory of the workspace that no link leads to."""
    (place.workspace / "a").mkdir()
    (place.workspace / "link").symlink_to("a")
    (place.workspace / "a" / "link").symlink_to("/etc")
    (place.workspace / "file").touch()
    assert "`cwd`" in await place.problem({"argv": ["true"], "cwd": cwd})


async def test_cwd_is_normalised(place: Bench) -> None:
    """Spellings of one directory give one target, so that a rule on `cwd` cannot be missed."""
    (place.workspace / "a" / "b").mkdir(parents=True)
    spellings = ["a/b", "./a//b/", "a/./b/.", f"{place.identity.path}/a/b"]
    assert {(await place.prepare(argv=["true"], cwd=cwd)).target.cwd for cwd in spellings} == {"a/b"}
    assert {(await place.prepare(argv=["true"], cwd=cwd)).target.cwd for cwd in ("", ".", "./")} == {"."}


async def test_replaced_workspace_is_noticed(place: Bench) -> None:
    """Another directory in the workspace's place is refused, not used."""
    place.workspace.rename(place.workspace.parent / "moved")
    place.workspace.mkdir()
    assert "another directory" in await place.problem({"argv": ["true"]})


async def test_environment_is_built_from_nothing(place: Bench) -> None:
    """A command gets PATH, HOME and LANG, and what the call sets on top; nothing of the gateway's."""
    run = await place.run_of(argv=["true"], env={"A": "1", "LANG": "de_DE"})
    assert run.env == {
        "PATH": f"{place.programs}:/usr/local/bin:/usr/bin:/bin",
        "HOME": place.identity.path,
        "LANG": "de_DE",
        "A": "1",
    }
    target = (await place.prepare(argv=["true"], env={"A": "1", "LANG": "de_DE"}, stdin="x")).target
    assert target.env == {"A", "LANG"}
    assert target.stdin


async def test_shell_text_runs_in_the_operators_bash(place: Bench) -> None:
    """Shell text goes to an absolute bash without profile files, and is only shell text to policy."""
    prepared = await place.shell("ls | wc -l")
    assert prepared.run is not None
    assert prepared.run.program.path == real("/usr/bin/bash")
    assert prepared.run.argv == ("bash", "--noprofile", "--norc", "-c", "--", "ls | wc -l")
    assert (prepared.target.program, prepared.target.argv) == (None, ())
    assert prepared.target.shell == "ls | wc -l"


async def test_timeout_can_only_be_shortened(place: Bench) -> None:
    """A call may ask for less than the operator's limit, not for more."""
    assert (await place.run_of(argv=["true"])).limits.wall_time.total_seconds() == 20
    assert (await place.run_of(argv=["true"], timeout_ms=1500)).limits.wall_time.total_seconds() == 1.5
    assert "20000" in await place.problem({"argv": ["true"], "timeout_ms": 20001})


async def test_only_declared_secrets_can_be_named(host: ProviderHost, tmp_path: Path) -> None:
    """Secrets are named, never shown; a name that the agent was not given is rejected."""
    place = bench(host, tmp_path, secrets={"TOKEN": "s3cr3t-value", "HOME": "x"})
    prepared = await place.prepare(argv=["true"], secrets=["TOKEN"])
    assert prepared.run is not None
    assert prepared.run.secrets == ("TOKEN",)
    assert prepared.target.secrets == {"TOKEN"}
    assert "s3cr3t-value" not in repr(prepared)
    assert "not declared" in await place.problem({"argv": ["true"], "secrets": ["OTHER"]})
    assert "part of every command" in await place.problem({"argv": ["true"], "secrets": ["HOME"]})


async def test_references_in_arguments_are_literal_text(host: ProviderHost, tmp_path: Path) -> None:
    """`${env:NAME}` means nothing in a tool call."""
    place = bench(host, tmp_path, secrets={"TOKEN": "s3cr3t-value"})
    run = await place.run_of(argv=["printf", "${env:PATH}"], env={"A": "${credential:TOKEN}"})
    assert run.argv == ("printf", "${env:PATH}")
    assert run.env["A"] == "${credential:TOKEN}"


async def test_claims_that_are_not_proved_fail_closed(host: ProviderHost, tmp_path: Path) -> None:
    """A profile that requires what the provider has not proved offers no tool, and says which claims."""
    place = bench(host, tmp_path, required_claims=("net.none", "no.such"))
    assert not place.tool.available()
    with pytest.raises(ProviderUnavailable, match=r"net\.none \(NOT_ENFORCED\), no\.such \(unknown\)"):
        await place.tool.prepare('{"argv": ["true"]}')


async def test_claims_that_a_provider_states_are_not_proof(tmp_path: Path) -> None:
    """A provider that states every claim and enforces none met what a profile required, by its word alone."""
    command = (sys.executable, "-m", "tyrum_conformance.broken", "states_every_claim")
    stating = ProviderSpec(name="chosen", kind="isolation", command=command, start_timeout=60.0)
    async with running(stating, replace(stating, name="trusted", trust_claims=True)) as host:
        refused = bench(host, tmp_path / "refused", required_claims=("net.none",))
        assert not refused.tool.available()
        with pytest.raises(
            ProviderUnavailable, match=r"net\.none \(PROVED \(stated by the provider, not ver"
        ):
            await refused.prepare(argv=["true"])
        asked = await bench(host, tmp_path / "asked").prepare(argv=["true"])
        assert "20 of 20 claims are stated by the provider, not verified" in asked.subject.summary
        taken = bench(host, tmp_path / "taken", provider="trusted", required_claims=("net.none",))
        assert taken.tool.available()
        assert "not verified" in (await taken.prepare(argv=["true"])).subject.summary


async def test_subject_holds_everything_that_determines_the_effect(place: Bench) -> None:
    """Every difference in what would run, where and by whom is a difference in the digest."""
    (place.workspace / "d").mkdir()
    variants: list[dict[str, Any]] = [
        {"argv": ["true"]},
        {"argv": ["true", "a"]},
        {"argv": ["true", "a b"]},
        {"argv": ["true", "a", "b"]},
        {"argv": ["/usr/bin/true"]},
        {"argv": ["true"], "cwd": "d"},
        {"argv": ["true"], "env": {"A": "1"}},
        {"argv": ["true"], "env": {"A": "2"}},
        {"argv": ["true"], "env": {"LANG": "C.UTF-8"}},
        {"argv": ["true"], "stdin": "x"},
        {"argv": ["true"], "timeout_ms": 10},
        {"shell": "true"},
        {"argv": ["bash", "--noprofile", "--norc", "-c", "--", "true"]},
    ]
    digests = [(await place.prepare(**variant)).subject.digest for variant in variants]
    assert len(set(digests)) == len(variants)
    again = [(await place.prepare(**variant)).subject.digest for variant in variants]
    assert again == digests


async def test_summary_shows_what_will_run_and_hides_nothing(place: Bench) -> None:
    """People see program, arguments, environment, directory, limits and boundary, with nothing invisible."""
    (place.workspace / "f").write_text("x", encoding="utf-8")
    arguments = {
        "argv": ["printf", "a b", "\x1b[2Jgone\r", "right\u202eleft", "f", "\\x1b"],
        "env": {"A": "1\n2"},
        "stdin": "first\nsec\x07ond",
        "timeout_ms": 1500,
    }
    summary = (await place.prepare(**arguments)).subject.summary
    assert "arguments    printf 'a b' $'\\x1b[2Jgone\\x0d' $'right\\u202eleft' f '\\x1b'" in summary
    assert "env          A=$'1\\x0a2'" in summary
    assert re.search(r"^environment  .*HOME=", summary, re.MULTILINE)
    assert "  | first" in summary
    assert "  $ $'sec\\x07ond'" in summary
    assert "1.5 s of wall time" in summary
    assert "runs as the gateway's user" in summary
    assert summary.endswith(
        "nothing is confined: 20 of 20 claims are NOT_ENFORCED  (tyrum providers explain chosen)"
    )
    assert f"content fixed, sha256 {sha256(place.workspace / 'f')[:12]}" in summary
    labels = "program arguments directory env environment stdin file limits power boundary"
    assert [line.split()[0] for line in summary.splitlines() if line[0] != " "] == labels.split()
    assert all(character == "\n" or character.isprintable() for character in summary)


@pytest.mark.parametrize(
    ("wall_time", "output_bytes", "expected"),
    [
        (timedelta(hours=24), 1 << 40, "24 h of wall time, 1 TiB of output, "),
        (timedelta(minutes=90), 4 << 30, "90 min of wall time, 4 GiB of output, "),
        (timedelta(seconds=90), 1536 << 10, "90 s of wall time, 1536 KiB of output, "),
        (timedelta(seconds=86_399.999), (4 << 30) + 1, "86399.999 s of wall time, 4294967297 bytes of "),
        (timedelta(milliseconds=50), 5 << 20, "0.05 s of wall time, 5 MiB of output, "),
    ],
)
async def test_limits_are_shown_exactly_in_human_units(
    place: Bench, wall_time: timedelta, output_bytes: int, expected: str
) -> None:
    """A limit is written in the largest unit in which it is exact."""
    prepared = await place.prepare(argv=["true"])
    assert prepared.run is not None
    assert prepared.candidate is not None
    run = replace(prepared.run, limits=RunLimits(wall_time, output_bytes, timedelta(seconds=2)))
    shown = Shown("process.run", run, None, {}, (), prepared.candidate, Boundary(0, "root", True))
    assert f"limits       {expected}" in subject_of(shown).summary


async def test_shell_text_is_shown_line_by_line(place: Bench) -> None:
    """Shell text reads as it was written, and lines with hidden characters stand out."""
    prepared = await place.shell("echo a\n\techo b\u2028c")
    assert "  | echo a\n  $ $'\\x09echo b\\u2028c'" in prepared.subject.summary


async def test_digests_of_unchanged_files_are_read_once(place: Bench) -> None:
    """A program is read again only when its identity or times changed."""
    status = os.stat(real("/usr/bin/true"))  # noqa: PTH116 - no blocking pathlib in a coroutine
    assert place.tool._digests.known(status) is None
    await place.prepare(argv=["true"])
    known = place.tool._digests.known(status)
    assert known is not None
    assert known.sha256 == sha256("/usr/bin/true")
