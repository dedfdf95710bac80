"""Standard input: one token line, then the lifeline to the host.

Invariant: when the host is gone, so is this process within five seconds, whatever its event loop does: the
lifeline is watched by a thread of its own, which exits the process itself as the last resort (ARCH-29).
"""

import contextlib
import json
import logging
import os
import select
import threading
import time
from collections.abc import Callable

from tyrum_provider_kit.environment import Misconfigured
from tyrum_provider_kit.proof import decode_token

TOKEN_DEADLINE = 10.0
"""Seconds for the token line to arrive."""
MAX_LINE_BYTES = 128
EXIT_AFTER_EOF = 4.5
"""Seconds from the end of standard input to the hard exit."""
HARD_EXIT_STATUS = 70

_log = logging.getLogger(__name__)


def take_stdin() -> int:
    """Move standard input to a descriptor that children do not inherit; they get /dev/null instead.

    Raises:
        Misconfigured: standard input is closed.
    """
    try:
        lifeline = os.dup(0)
    except OSError as error:
        raise Misconfigured("standard input is closed; the host writes the token there") from error
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0, inheritable=True)
    os.close(null)
    return lifeline


def read_token(descriptor: int, deadline: float = TOKEN_DEADLINE) -> bytes:
    """Read the token line.

    Raises:
        Misconfigured: no well-formed line within the deadline; the message never repeats what was read.
    """
    line = b""
    give_up = time.monotonic() + deadline
    while b"\n" not in line:
        if len(line) > MAX_LINE_BYTES:
            raise Misconfigured(f"standard input: the token line is longer than {MAX_LINE_BYTES} bytes")
        left = give_up - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise Misconfigured(f"standard input: no token line within {deadline:g} s")
        chunk = os.read(descriptor, MAX_LINE_BYTES)
        if not chunk:
            raise Misconfigured("standard input ended before the token line")
        line += chunk
    try:
        return decode_token(line.partition(b"\n")[0].decode("ascii"))
    except ValueError as error:
        raise Misconfigured(
            "standard input: the first line is not a token of 32 bytes in base64url"
        ) from error


def watch(descriptor: int, *, on_end: Callable[[], None], before_exit: Callable[[], None]) -> None:
    """Watch the lifeline in a thread: at its end call `on_end`, and leave no later than the hard exit.

    Both callbacks run in that thread. `on_end` must not wait; `before_exit` cleans up what a hard exit would
    leave behind.
    """

    def wait_for_end() -> None:
        try:
            while os.read(descriptor, 4096):
                pass  # nothing but the token line is ever expected
        except OSError as error:
            _log.warning("the lifeline broke: %s", error)
        try:
            on_end()
        finally:  # waited for here: another thread might not be had
            time.sleep(EXIT_AFTER_EOF)
            _leave(EXIT_AFTER_EOF, before_exit)

    threading.Thread(target=wait_for_end, name="lifeline", daemon=True).start()


def exit_hard_after(seconds: float, before_exit: Callable[[], None]) -> None:
    """End the process unconditionally after `seconds`, unless it has ended by then."""
    timer = threading.Timer(seconds, _leave, (seconds, before_exit))
    timer.daemon = True
    timer.start()


def _leave(seconds: float, before_exit: Callable[[], None]) -> None:
    before_exit()
    # Not through logging: whoever hangs may hold its lock, and the reader of the log may be gone.
    with contextlib.suppress(OSError):
        os.set_blocking(2, False)
        os.write(2, _farewell(seconds))
    os._exit(HARD_EXIT_STATUS)


def _farewell(seconds: float) -> bytes:
    message = f"the provider did not stop within {seconds:g} s and is ended"
    return json.dumps({"level": "critical", "logger": __name__, "message": message}).encode() + b"\n"
