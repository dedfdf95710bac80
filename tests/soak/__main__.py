"""Command line of the soak: `python -m tests.soak [--rounds N] [--lanes N] [--seed N]`."""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.soak import verify
from tests.soak.lane import Lane, Tally
from tests.soak.phases import PHASES

LEAST = 30
"""Kills in every phase that a whole soak must have seen."""
WHOLE = 1000
"""Rounds of a whole soak."""


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def run(directory: Path, *, rounds: int, lanes: int, seed: int, batch: int) -> int:
    """Soak, and print the histogram; return the number of violations and of phases that were missed."""
    begun = time.monotonic()
    running = [Lane(directory / f"lane{number}", f"lane{number}", seed, 6, say) for number in range(lanes)]
    async with asyncio.TaskGroup() as group:
        for number, lane in enumerate(running):
            share = rounds // lanes + (number < rounds % lanes)
            group.create_task(lane.soak(share, batch))
    total, done = Tally(), Counter[str]()
    for lane in running:
        total.add(lane.tally)
        done += verify.totals(lane.database, lane.ran)
    report(total, done, time.monotonic() - begun)
    missed = [phase for phase in PHASES if rounds >= WHOLE and total.phases[phase] < LEAST]
    for phase in missed:
        say(f"missed: only {total.phases[phase]} kills while {phase}")
    for violation in total.violations:
        say(f"violation: {violation}")
    return len(total.violations) + len(missed)


def report(total: Tally, done: Counter[str], seconds: float) -> None:
    """Print what was killed when, and what was done meanwhile."""
    starts = sorted(total.starts)
    say(f"\n{total.rounds} rounds in {seconds:.0f} s: {total.gateways} gateways, {total.providers} providers")
    say(f"start to serving: median {starts[len(starts) // 2]:.2f} s, longest {starts[-1]:.2f} s")
    say("kills at which something was")
    most = max(total.phases.values())
    for phase in PHASES:
        number = total.phases[phase]
        say(f"  {phase:<22}{number:>6}  {'#' * round(40 * number / most)}")
    for name, number in sorted(done.items()):
        say(f"  {name:<26}{number:>8}")
    say(f"violations: {len(total.violations)}")


def main() -> int:
    """Run it in a scratch directory that is kept when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=WHOLE)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=50, help="rounds of a lane between two checks")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="ts"))
    wrong = asyncio.run(
        run(directory, rounds=chosen.rounds, lanes=chosen.lanes, seed=chosen.seed, batch=chosen.batch)
    )
    if wrong:
        say(f"kept: {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
