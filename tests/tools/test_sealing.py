"""A question says of a program whether it may change after approval; real programs are tried."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import toolchain
from tests.tools.places import Bench, script

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRUE = Path("/usr/bin/true").read_bytes()
PYTHON = Path(sys.executable).resolve()


def own(place: Bench, source: str) -> str:
    """Copy a program into the workspace, as an agent could."""
    copy = place.workspace / Path(source).name
    shutil.copyfile(os.path.realpath(source), copy)
    copy.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(copy, 65534, 65534)
    return f"./{copy.name}"


async def program_line(place: Bench, program: str) -> str:
    """Return what the question says of a program."""
    prepared = await place.prepare(argv=[program])
    return next(line for line in prepared.subject.summary.splitlines() if line.startswith("program "))


async def test_a_plain_program_of_anybody_is_fixed(place: Bench) -> None:
    """It runs from a sealed copy, so that its content is what was approved; root's own runs as it is."""
    assert "(content fixed, sha256 " in await program_line(place, own(place, "/usr/bin/printenv"))
    assert "(content fixed, sha256 " in await program_line(place, "/usr/bin/printenv")


async def test_what_can_have_no_sealed_copy_may_change_after_approval(place: Bench) -> None:
    """A shell wrapper, and a program that looks for its own place."""
    wrapper = script(place.workspace / "wrapper", "#!/bin/sh\nexec /usr/bin/true\n")
    place_bound = place.workspace / "bound"
    place_bound.write_bytes(TRUE + b"$ORIGIN/../lib")
    place_bound.chmod(0o755)
    for path in (wrapper, place_bound):
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
        assert "(may change after approval: " in await program_line(place, f"./{path.name}")


async def test_what_is_opened_by_its_path_may_change_where_others_can_rename_it(place: Bench) -> None:
    """A script that root alone can write, in a directory of others; likewise what a shell starts."""
    tool = script(place.programs / "tool", "#!/bin/sh\nexec /usr/bin/true\n")
    shutil.copyfile("/usr/bin/true", place.programs / "plain")
    (place.programs / "plain").chmod(0o755)
    if os.geteuid() == 0:
        os.chown(place.programs, 65534, 65534)
    assert "(may change after approval: what interprets it" in await program_line(place, str(tool))
    started = (await place.shell("tool; plain; /usr/bin/true")).subject.summary.splitlines()
    lines = [line for line in started if line.startswith("starts ")]
    assert ["may change after approval" in line for line in lines] == [True, True, False]


async def test_the_interpreter_of_a_virtual_environment_is_the_systems(place: Bench) -> None:
    """A link to a program is that program: what root alone can write is fixed without a copy."""
    line = await program_line(place, sys.executable)
    assert PYTHON.owner() != "root" or "(content fixed, sha256 " in line


@pytest.mark.toolchain
@pytest.mark.parametrize("name", ["node", "java", "npm"])
async def test_programs_that_break_as_a_copy_are_told(place: Bench, name: str) -> None:
    """Java and node look for files beside themselves, npm is a script: none is promised to be fixed."""
    line = await program_line(place, own(place, str(toolchain.require(name))))
    assert "(may change after approval: " in line
