"""Whether the program whose content was approved is what runs.

A provider executes the very file that it compared, and where others than root can write that file in place, a
sealed copy of it (docs/contracts/isolation.md). Some programs can have none: then what runs may differ.
"""

from pathlib import Path
from typing import Final

from tyrum_gateway.tools import programs, reach
from tyrum_gateway.tools.digests import Content

LARGEST: Final = 256 * 1024 * 1024
"""Bytes of the largest program that is copied, as the contract has it."""

_NO_COPIES: Final = "2"
_NOEXEC: Final = Path("/proc/sys/vm/memfd_noexec")


def may_change(program: programs.Program, content: Content, replaceable: str) -> str:
    """Say why a program may change after its content was fixed; empty when it cannot.

    Args:
        program: Resolved.
        content: What it holds.
        replaceable: How others than root can put another in its place. That concerns what is opened again by
            its path; the file that was compared is executed under whatever name it has by then.

    Returns:
        A clause for people.
    """
    written = bool(reach.writers(program.status))
    if not (written or replaceable):
        return ""
    if programs.interpreter(program) is not None:
        return "what interprets it opens it again"
    if not programs.is_elf(program):
        return "it is no ELF program"
    if not written:
        return ""
    if content.own_place:
        return "it looks for files beside itself, so that no copy of it can run"
    if program.status.st_size > LARGEST:
        return "it is too large for a sealed copy"
    return "this machine executes no sealed copies (vm.memfd_noexec)" if _forbidden() else ""


def _forbidden() -> bool:
    try:
        return _NOEXEC.read_text(encoding="ascii").strip() == _NO_COPIES
    except OSError:
        return False  # a kernel without the setting executes them
