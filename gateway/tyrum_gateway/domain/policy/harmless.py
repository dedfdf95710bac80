"""Programs that are known to start nothing, whatever their arguments, input and files say.

Invariant: what is not on this list may start others, so that an allow leaves nothing open to it unless its
author answers for that. A program is on it when none of its options, operands, variables or configuration
files starts a program, loads code or names a file that it writes: a written file (`.profile`, a hook of git)
is a program that runs later. What a program reads and prints is another matter, and the rule's author's.
"""

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

_DIRECTORIES = frozenset({"/usr/bin", "/bin"})
"""Where a name is the distribution's own program."""

_GROUPS: Mapping[str, str] = {
    "prints its arguments, or computes from them": "basename dirname echo expr factor pathchk printf seq yes",
    "has an exit status and no output": "[ false sleep test true",
    "tells of machine, session or user": "arch groups id logname nproc pwd tty uname whoami",
    "lists files and what is known of them": "df du ls readlink realpath stat",
    "prints files or standard input, in whole or in part": "cat cut grep head tail",
    "prints them in another form": (
        "base32 base64 basenc column expand fmt fold hexdump nl numfmt od paste pr rev tac tr tsort unexpand"
    ),
    "compares sorted or equal files": "cmp comm join",
    "counts, or computes checksums": (
        "b2sum cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum sum wc"
    ),
}
"""What they do, by which they can be judged; each was read against its manual and the symbols it imports.

Not on it, though they look alike: `date` and `hostname` set what they show; `uniq`, `sort`, `shuf`, `tee`,
`xxd` and `split` write files that arguments name; `diff` starts `pr`, `tree` starts itself, `file` starts
decompressors; `jq` and `less` read programs and keys of a file in the home directory."""

HARMLESS: Mapping[str, str] = {name: why for why, names in _GROUPS.items() for name in names.split()}
"""Name of each program, and why nothing has to be fixed in its arguments."""


_DATA = frozenset({*HARMLESS, "shuf", "sort", "tee", "uniq"})
"""Programs to which standard input is never more than data, whatever their arguments are."""


def starts_nothing(program: str) -> bool:
    """Tell whether a program is known to start nothing and to write no file.

    Args:
        program: Resolved path: the name alone would be anybody's, and a multi-call binary has another.
    """
    return _of_the_distribution(program, HARMLESS)


def reads_data(program: str) -> bool:
    """Tell whether a program is known to take standard input for data, with arguments that are fixed."""
    return _of_the_distribution(program, _DATA)


def _of_the_distribution(program: str, names: Collection[str]) -> bool:
    path = PurePosixPath(program)
    return path.name in names and str(path.parent) in _DIRECTORIES
