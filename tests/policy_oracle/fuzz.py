"""Judges generated texts, runs those that are allowed, and counts."""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.policy_oracle.oracle import Allowed, Commands, Escape, Judge, check_run, check_words
from tests.policy_oracle.sandbox import Sandbox


@dataclass(slots=True)
class Outcome:
    """What became of the texts."""

    texts: int = 0
    read: int = 0
    """Texts that were read as literal commands, whatever policy said; bash was asked for their words."""
    allowed: int = 0
    ran: int = 0
    """Allowed texts that bash really ran with recording programs."""
    different: int = 0
    """Allowed texts, each counted once."""
    programs: int = 0
    """Programs that allowed texts started."""
    escapes: list[Escape] = field(default_factory=list)
    crashes: list[tuple[str, str]] = field(default_factory=list)
    """Texts that the judge failed at, and how."""
    slowest: float = 0.0
    """The longest that a text took to be judged, in seconds."""


@dataclass(frozen=True, slots=True)
class _Job:
    text: str
    commands: Commands
    allowed: bool


def fuzz(texts: Iterable[str], judge: Judge, sandboxes: Sequence[Sandbox]) -> Outcome:
    """Judge all texts, then run them, each sandbox its part at the same time as the others.

    Which sandbox a text goes to depends on its place alone, so that a seed finds the same again.
    """
    outcome = Outcome()
    jobs = list(_judged(texts, judge, outcome))
    outcome.different = len({job.text for job in jobs if job.allowed})
    with ThreadPoolExecutor(len(sandboxes)) as threads:
        parts = [
            threads.submit(_run, sandbox, jobs[place :: len(sandboxes)])
            for place, sandbox in enumerate(sandboxes)
        ]
    for part in parts:
        ran, programs, escapes = part.result()
        outcome.ran += ran
        outcome.programs += programs
        outcome.escapes += escapes
    return outcome


def _judged(texts: Iterable[str], judge: Judge, outcome: Outcome) -> Iterator[_Job]:
    for text in texts:
        outcome.texts += 1
        begun = time.perf_counter()
        try:
            verdict = judge(text)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            outcome.crashes.append((text, repr(error)))
            continue
        finally:
            outcome.slowest = max(outcome.slowest, time.perf_counter() - begun)
        allowed = isinstance(verdict, Allowed)
        outcome.allowed += allowed
        if verdict.commands is not None:
            outcome.read += 1
            yield _Job(text, verdict.commands, allowed)


def _run(sandbox: Sandbox, jobs: Sequence[_Job]) -> tuple[int, int, list[Escape]]:
    ran = programs = 0
    escapes: list[Escape] = []
    for job in jobs:
        escapes += check_words(sandbox, job.text, job.commands)
        if job.allowed:
            started, found = check_run(sandbox, job.text, job.commands)
            ran += started > 0
            programs += started
            escapes += found
    return ran, programs, escapes
