"""Instance ids: `inst_` and a ULID in lower case."""

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_instance_id() -> str:
    """Return a fresh id; ids sort by the millisecond in which they were made."""
    number = (time.time_ns() // 1_000_000 << 80) | secrets.randbits(80)
    return "inst_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
