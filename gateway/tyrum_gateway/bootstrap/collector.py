"""How often the interpreter looks for garbage in cycles.

Invariant: what a gateway consists of once it serves is not looked through again; it stays until the end.
"""

import gc

THRESHOLDS = (5_000, 20, 10)
"""Objects more than before until the youngest are looked through, and how often that happens until older ones
are. With the interpreter's own 700 it took a twentieth of a turn's time: a turn leaves few cycles behind."""


def settle() -> None:
    """Take all that exists as permanent: to look through it held every turn up for a tenth of a second."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
