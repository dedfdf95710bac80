"""`make policy-fuzz`: does bash ever do more, or anything else, than policy allowed?"""

import argparse
import faulthandler
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from tests.policy_oracle.fuzz import Outcome, check, fuzz
from tests.policy_oracle.generator import Generator, every_fragment
from tests.policy_oracle.judge import ProductJudge
from tests.policy_oracle.sandbox import Sandbox

TEXTS = 10_000
SANDBOXES = 2
"""Always as many, so that a seed makes the same texts everywhere; in each the stubs exit differently."""
LEAST_ALLOWED = 0.15
"""Of the texts; with fewer, finding nothing would mean little."""
_SHOWN = 20


def main() -> int:
    """Run once; return 0 only when there is no escape, no crash, and enough was allowed."""
    arguments = _arguments()
    faulthandler.enable()
    seed: int = arguments.seed if arguments.seed is not None else int.from_bytes(os.urandom(4), "big")
    _say(f"seed {seed}")
    begun = time.monotonic()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tpf")))
        scratch.chmod(0o711)
        sandboxes = [
            stack.enter_context(Sandbox(scratch / str(number), seed=number)) for number in range(SANDBOXES)
        ]
        _say(f"texts run with {sandboxes[0].confinement}")
        outcome = _fuzz(seed, arguments.texts, sandboxes)
    return _report(outcome, seed, time.monotonic() - begun)


def _fuzz(seed: int, texts: int, sandboxes: Sequence[Sandbox]) -> Outcome:
    """Begin with each piece of bash once; of the rest each sandbox gets a part, with a seed of its own."""
    judges = [ProductJudge(sandbox) for sandbox in sandboxes]
    outcome = Outcome()
    for text in islice(every_fragment(), texts):
        outcome.add(check(text, judges[0], sandboxes[0]))
    left = texts - outcome.texts
    parts = [left // len(sandboxes) + (place < left % len(sandboxes)) for place in range(len(sandboxes))]
    with ThreadPoolExecutor(len(sandboxes)) as threads:
        running = [
            threads.submit(fuzz, Generator(seed + place, sandbox.programs), part, judge, sandbox)
            for place, (sandbox, judge, part) in enumerate(zip(sandboxes, judges, parts, strict=True))
        ]
    for done in running:
        outcome.add(done.result())
    return outcome


def _report(outcome: Outcome, seed: int, seconds: float) -> int:
    rows = {
        "texts": f"{outcome.texts}",
        "read as literal commands, words compared with bash": f"{outcome.read}",
        "allowed": f"{outcome.allowed} ({outcome.allowed / max(1, outcome.texts):.0%}), "
        f"{len(outcome.different)} of them different",
        "allowed and run in bash": f"{outcome.ran}",
        "programs recorded": f"{outcome.programs}",
        "escapes": f"{len({escape.text for escape in outcome.escapes})}",
        "crashes": f"{len(outcome.crashes)}",
        "slowest verdict": f"{outcome.slowest * 1000:.0f} ms",
        "seconds": f"{seconds:.0f}",
        "seed": f"{seed}",
    }
    for name, value in rows.items():
        _say(f"  {name:<52} {value}")
    for escape in outcome.escapes[:_SHOWN]:
        _say(f"escape: {escape.text!r}: {escape.kind}: {escape.detail}")
    for text, error in outcome.crashes[:_SHOWN]:
        _say(f"crash: {text!r}: {error}")
    failed = bool(outcome.escapes or outcome.crashes)
    if outcome.allowed < LEAST_ALLOWED * outcome.texts:
        _say(f"too little was allowed: {LEAST_ALLOWED:.0%} are needed for this to mean something")
        failed = True
    if outcome.ran != outcome.allowed:
        _say("not every allowed text started a program")
        failed = True
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.policy_oracle", description=__doc__)
    parser.add_argument("--texts", type=int, default=TEXTS, help=f"how many (default {TEXTS})")
    parser.add_argument(
        "--seed", type=int, help="the same seed makes the same texts (default: another each time)"
    )
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
