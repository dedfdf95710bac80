"""Who can replace a program: what is found of real files, and what becomes of calls that run them."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.tools.places import SYSTEM, Bench, script
from tyrum_gateway.tools import programs, reach, walking

NOWHERE = "/nowhere/workspace"


def found(path: Path | str) -> programs.Program:
    """Resolve a program that exists."""
    program = programs.executable(str(path))
    assert program is not None
    return program


def status(mode: int, uid: int = 0) -> os.stat_result:
    """What the kernel says of a file with this mode and owner, its group being 7."""
    return os.stat_result((mode, 1, 1, 1, uid, 7, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("of", "who"),
    [
        (status(stat.S_IFREG | 0o755), ""),
        (status(stat.S_IFREG | 0o4755), ""),
        (status(stat.S_IFDIR | 0o700), ""),
        (status(stat.S_IFREG | 0o555, uid=1000), "belongs to uid 1000"),
        (status(stat.S_IFDIR | 0o755, uid=65534), "belongs to uid 65534"),
        (status(stat.S_IFDIR | 0o1777), "is writable for everybody"),
        (status(stat.S_IFREG | 0o757), "is writable for everybody"),
        (status(stat.S_IFDIR | 0o2775), "is writable for gid 7"),
    ],
)
def test_whoever_may_write_besides_root_is_named(of: os.stat_result, who: str) -> None:
    """An owner counts whatever the mode says, and a sticky directory is as open as any other."""
    assert reach.writers(of) == who


@pytest.mark.parametrize("name", ["true", "ls", "bash", "ldd", "wc"])
def test_programs_of_the_system_are_out_of_reach(name: str) -> None:
    """Where root alone writes, binaries and scripts are trusted by their path, through whatever links."""
    program = found(f"/usr/bin/{name}")
    assert reach.replaceable(program, NOWHERE) == ""
    assert reach.diverted(f"/bin/{name}", programs.SearchPath(SYSTEM[1:]), NOWHERE) == ""
    assert reach.diverted(name, programs.SearchPath(SYSTEM[1:]), NOWHERE) == ""
    assert reach.replaceable(program, "/usr") == f"`{name}` can be replaced: it lies in the workspace"


def test_a_program_in_a_directory_of_others_can_be_replaced(tmp_path: Path) -> None:
    """The first place on the way where others can write is named, also when the program itself is closed."""
    program = found(script(tmp_path / "tool", mode=0o555))
    assert reach.replaceable(program, NOWHERE).startswith("`tool` can be replaced: /")


def test_what_interprets_a_script_counts_too(tmp_path: Path) -> None:
    """An interpreter where others write, or one named from the workspace, decides what the script does."""
    for line, why in (
        ("#!/bin/sh", ""),
        ("#!/usr/bin/env python3", ""),
        ("no script", ""),
        ("#!/nowhere/at/all", ""),
        (f"#! {script(tmp_path / 'interpreter')} -x", "/"),
        ("#!./interpreter", "it is named relative to the workspace"),
    ):
        program = found(script(tmp_path / "job", f"{line}\n"))
        found_out = reach.interpreted(program, NOWHERE)
        assert found_out.startswith(why), line
        assert bool(found_out) is bool(why), line
    for number in range(5, 0, -1):
        script(tmp_path / f"job{number}", f"#!{tmp_path}/job{number + 1}\n" if number < 5 else "#! /x\r \n")
    named = list(reach.interpreters(found(tmp_path / "job1"), NOWHERE))
    assert [name.rpartition("/")[2] for name in named] == ["job2", "job3", "job4", "job5", "x\r"]
    (tmp_path / "job").write_bytes(b"#!\t/x\xff\0 y\n")
    assert list(reach.interpreters(found(tmp_path / "job"), NOWHERE)) == [os.fsdecode(b"/x\xff")]
    inside = found(script(tmp_path / "job", "#!/usr/bin/true\n"))
    assert reach.interpreted(inside, "/usr/bin") == "it lies in the workspace"
    # Its first line names /bin/bash.
    why = reach.replaceable(found("/usr/bin/ldd"), "/bin")
    assert why == "what interprets `ldd` can be replaced: it lies in the workspace"


def test_bash_finds_another_program_where_others_write_before_it(tmp_path: Path) -> None:
    """Every directory that is searched first counts, and every link on the way, not those searched later."""
    (tmp_path / "linked").symlink_to("/usr/bin")
    for directories in ((tmp_path, "/usr/bin"), (tmp_path / "missing", "/usr/bin"), (tmp_path / "linked",)):
        search = programs.SearchPath(tuple(map(str, directories)))
        why = reach.diverted("true", search, NOWHERE)
        assert why.startswith("bash may find another `true`: /"), directories
    assert reach.diverted("true", programs.SearchPath(("/usr/bin", str(tmp_path))), NOWHERE) == ""
    assert reach.diverted(str(tmp_path / "linked/true"), programs.SearchPath(()), NOWHERE)


def test_a_ring_of_links_ends(tmp_path: Path) -> None:
    """What leads nowhere is followed as often as Linux would, and each place on a way is given."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert len(list(walking.places(f"{tmp_path}/a/x"))) < 50 * len(tmp_path.parts)
    (tmp_path / "up").symlink_to("../x/./y")
    way = [place for place, _ in walking.places(f"{tmp_path}//up/z")]
    above = tmp_path.parent
    assert way[-4:] == [f"{tmp_path}/up", f"{above}/x", f"{above}/x/y", f"{above}/x/y/z"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_call_says_that_others_can_replace_its_program(place: Bench) -> None:
    """Policy and the human who is asked see why; a program of the system carries nothing of that."""
    script(place.programs / "tool")
    prepared = await place.prepare(argv=["tool"])
    assert prepared.target.replaceable.startswith("`tool` can be replaced: /")
    assert f"caution      {prepared.target.replaceable}; it can be approved once" in prepared.subject.summary
    script(place.workspace / "own")
    assert (await place.prepare(argv=["./own"])).target.replaceable
    system = await place.prepare(argv=["true"])
    assert system.target.replaceable == ""
    assert "caution" not in system.subject.summary
    assert "replaceable" not in json.loads(system.target.describe())


@pytest.mark.asyncio(loop_scope="module")
async def test_a_list_says_it_of_each_command_that_bash_looks_for(place: Bench) -> None:
    """A plain name is found behind the open directory of this place; an absolute path is not searched for."""
    script(place.programs / "tool")
    prepared = await place.shell("/usr/bin/wc | tool; wc")
    absolute, own, plain = (command.replaceable for command in prepared.target.commands)
    assert absolute == ""
    assert own.startswith("`tool` can be replaced: /")
    assert plain.startswith("bash may find another `wc`: /")
    assert prepared.subject.summary.count("caution      ") == 2
    script(place.programs / "bash", "#!/bin/sh\n")
    through = (await place.shell("/usr/bin/wc | /usr/bin/wc")).target
    assert [command.replaceable.partition(":")[0] for command in through.commands] == [
        "`bash` can be replaced"
    ] * 2
