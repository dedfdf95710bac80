"""What was compared is what runs, also when the file is changed in place right after the comparison."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.local_spawn.driver import Provider, new_id
from tyrum.isolation.v1 import isolation_pb2 as pb
from tyrum_local_spawn.supervision import sealed

PROGRAM = Path("/usr/bin/printenv")
"""Small, and without a look for its own place."""


def own(directory: Path, source: Path = PROGRAM) -> Path:
    """Copy a program to where its owner can write it; for root the owner is somebody else."""
    program = directory / new_id("program")
    shutil.copyfile(source, program)
    program.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(program, 65534, 65534)
    return program


def test_a_program_that_is_replaced_after_its_comparison_is_not_what_runs(tmp_path: Path) -> None:
    """The copy runs what was compared, six times of six, though the file holds another program by then."""
    for _ in range(6):
        program = own(tmp_path)
        with program.open("rb") as file:
            copy = sealed.copy_of(file.fileno())
        assert copy is not None
        assert copy.sha256 == hashlib.sha256(PROGRAM.read_bytes()).hexdigest()
        with program.open("r+b") as file:
            file.write(Path("/usr/bin/false").read_bytes())
        assert subprocess.run([program], check=False).returncode == 1, "the file is another program now"
        ran = subprocess.run(
            ["printenv", "WORD"],
            executable=f"/proc/self/fd/{copy.fd}",
            pass_fds=[copy.fd],
            env={"WORD": "kept"},
            capture_output=True,
            check=True,
        )
        assert ran.stdout == b"kept\n"
        with pytest.raises(OSError, match=r"not permitted|busy|denied"):
            os.pwrite(os.open(f"/proc/self/fd/{copy.fd}", os.O_RDWR), b"x", 0)
        os.close(copy.fd)


@pytest.mark.parametrize("place", sealed.PLACES)
def test_a_program_that_looks_for_its_own_place_has_no_copy(tmp_path: Path, place: bytes) -> None:
    """Also when its words stand across two blocks."""
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF" + bytes(sealed._BLOCK - 4 - len(place) // 2) + place)
    with program.open("rb") as file:
        assert sealed.copy_of(file.fileno()) is None


@pytest.mark.asyncio(loop_scope="module")
async def test_a_program_of_another_owner_runs_from_its_copy(provider: Provider) -> None:
    """Argv and environment are as ever; the program itself is seen to be a copy in memory."""
    program = own(provider.workspace, Path("/usr/bin/readlink"))
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    reference = pb.FileReference(path=str(program), sha256=digest)
    found = await provider.run(provider.spec(str(program), "/proc/self/exe", program=reference))
    assert found.stdout.head.startswith(b"/memfd:")
    system = pb.FileReference(path="/usr/bin/readlink", sha256=digest)
    found = await provider.run(provider.spec("/usr/bin/readlink", "/proc/self/exe", program=system))
    assert found.stdout.head == b"/usr/bin/readlink\n", "what root alone can write needs no copy"
