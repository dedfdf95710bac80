"""Where an export goes: stdout, or a new file that only its owner can read.

Invariant: a file with the final name is whole; what was there before is never overwritten.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tyrum_gateway.cli.failure import ExitCode, Failure


@contextmanager
def destination(path: Path | None) -> Iterator[TextIO]:
    """Open a destination; a file that is not finished is removed again.

    Raises:
        Failure: The file exists or cannot be written.
    """
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    if path.exists():
        raise Failure(f"`{path}` exists", hint="name another file", code=ExitCode.USAGE)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Failure(f"cannot write `{path}`: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(draft, path)
        except OSError as error:
            raise Failure(f"cannot write `{path}`: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
