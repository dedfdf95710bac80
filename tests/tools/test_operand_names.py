"""Files that are named inside arguments: found, shown and fixed like any other."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.places import Bench

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
    prepared = await place.prepare(argv=[*argv, "--file=/etc/passwd", "-fjob", "-fother", "--file=job"])
    assert prepared.run is not None
    assert [Path(operand.path).name for operand in prepared.run.operands] == ["job", "other"]
    assert json.loads(prepared.subject.json)["open_operands"] == ["/etc/passwd"]
