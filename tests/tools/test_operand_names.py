"""Files that are named inside arguments: found, shown and fixed like any other."""

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.tools.places import Bench, script

pytestmark = pytest.mark.asyncio(loop_scope="module")


def sha256(path: str) -> str:
    """Digest a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "argument",
    [
        *("--file=job", "--file=./job", "--set=key=job", "if=job", "=job", "-fjob", "-f./job", "-f=job"),
        *("@job", "-d@job", "file=@job", "--data=@job", "-Ffile=@job", "--file={workspace}/job", "-flink"),
    ],
)
async def test_a_file_named_inside_an_argument_is_fixed_by_content(place: Bench, argument: str) -> None:
    """What stands behind `=`, `@` or an option of one letter is a file as well, shown and fixed alike."""
    file = place.workspace / "job"
    file.write_text("good", encoding="utf-8")
    (place.workspace / "link").symlink_to("job")
    named = argument.format(workspace=place.workspace)
    calls: tuple[dict[str, Any], ...] = ({"argv": ["cat", named]}, {"shell": f"ls; cat '{named}'"})
    for arguments in calls:
        file.write_text("good", encoding="utf-8")
        first = await place.prepare(**arguments)
        assert first.run is not None
        path = f"{place.identity.path}/job"
        assert (path, sha256(path)) in [(operand.path, operand.sha256) for operand in first.run.operands]
        assert f"file         {path}  (content fixed" in first.subject.summary
        file.write_text("evil", encoding="utf-8")
        assert (await place.prepare(**arguments)).subject.digest != first.subject.digest


async def test_what_only_resembles_a_file_in_an_argument_is_none(place: Bench) -> None:
    """Names of no file, of directories and inside words are left alone; files elsewhere are shown as open."""
    for name in ("job", "other"):
        (place.workspace / name).write_text(name, encoding="utf-8")
    (place.workspace / "sub").mkdir()
    argv = ["cat", "--file=sub", "-fsub", "@missing", "--job", "-vfjob", "a@job", "a=b=", "=", "@", "-f", "-"]
    argv += ["/dev/null", "/dev/stdin", "/proc/self/fd/0"]
    prepared = await place.prepare(argv=[*argv, "--file=/etc/passwd", "-fjob", "-fother", "--file=job"])
    assert prepared.run is not None
    assert [Path(operand.path).name for operand in prepared.run.operands] == ["job", "other"]
    assert json.loads(prepared.subject.json)["open_operands"] == ["/etc/passwd"]


async def test_a_file_that_cannot_be_fixed_is_never_left_out(place: Bench) -> None:
    """A path that is no text, is too long, or means another file to the command, is shown as not fixed."""
    odd = place.workspace / os.fsdecode(b"odd\xff")
    odd.write_text("good", encoding="utf-8")
    (place.workspace / "to-odd").symlink_to(odd.name)
    (place.workspace / "job").write_text("good", encoding="utf-8")
    (place.workspace / "to-own").symlink_to("/proc/self/cwd/job")
    closed = place.workspace / "closed"
    closed.write_text("good", encoding="utf-8")
    closed.chmod(0)
    nameless = place.workspace / "nameless"
    with nameless.open("w", encoding="utf-8") as held:
        nameless.unlink()
        held_path = f"/proc/{os.getpid()}/fd/{held.fileno()}"
        argv = ["cat", "to-odd", "/dev/fd/../cwd/job", "--file=to-own", "closed", held_path]
        summary = (await place.prepare(argv=argv)).subject.summary
    for name in (
        *(f"'{place.identity.path}/odd\\xff'", "/dev/fd/../cwd/job", held_path),
        f"{place.identity.path}/to-own",
    ):
        assert f"file         {name}  (content not fixed" in summary
    # Root reads it nevertheless.
    assert f"file         {closed}  (content " in summary


async def test_a_file_deeper_than_a_path_can_be_long_is_shown(place: Bench) -> None:
    """A command in a deep directory opens what no absolute path reaches: its content counts as not fixed."""
    deep = [name * 250 for name in "abcdefghijklmno"]
    start = os.open(place.workspace, os.O_RDONLY)
    for name in deep:
        os.mkdir(name, dir_fd=start)
        following = os.open(name, os.O_RDONLY, dir_fd=start)
        os.close(start)
        start = following
    name = "p" * 240
    os.mkdir(name, dir_fd=start)
    os.close(os.open(f"{name}/{name}", os.O_CREAT | os.O_WRONLY, dir_fd=start))
    os.close(start)
    prepared = await place.prepare(argv=["cat", f"{name}/{name}"], cwd="/".join(deep))
    assert json.loads(prepared.subject.json)["open_operands"] == [
        "/".join((place.identity.path, *deep, name, name))
    ]


@pytest.mark.parametrize("named", ["{workspace}/first", "{outside}/link/first", "./first"])
async def test_what_interprets_an_interpreter_is_fixed_too(place: Bench, named: str) -> None:
    """Linux starts interpreters that are scripts themselves: each that others can replace is shown."""
    outside = place.workspace.parent
    (outside / "link").symlink_to(place.workspace)
    script(place.workspace / "job", f"#!{named.format(workspace=place.workspace, outside=outside)}\n")
    script(place.workspace / "first", "#!./second\n")
    script(place.workspace / "second", f"#!{script(outside / 'third')}\n")
    calls: tuple[dict[str, Any], ...] = ({"argv": ["./job"]}, {"shell": "ls; ./job"})
    for arguments in calls:
        prepared = await place.prepare(**arguments)
        assert prepared.run is not None
        paths = [operand.path for operand in prepared.run.operands]
        assert paths[-2:] == [f"{place.identity.path}/{name}" for name in ("first", "second")]
        assert json.loads(prepared.subject.json)["open_operands"] == [str(outside.resolve() / "third")]


async def test_walking_long_paths_keeps_nobody_waiting(place: Bench) -> None:
    """Arguments full of long paths are looked up beside the loop: that takes a second for the longest."""
    (place.workspace / "a").mkdir()
    await place.prepare(argv=["cat"])
    long = asyncio.ensure_future(place.prepare(argv=["cat", "a/../" * 800, "a/../" * 799]))
    await asyncio.sleep(0)
    assert not long.done()
    await long
