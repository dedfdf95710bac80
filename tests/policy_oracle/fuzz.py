"""Judges generated texts, runs those that are allowed, and counts."""

import time
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

from tests.policy_oracle.generator import Generator
from tests.policy_oracle.oracle import Allowed, Escape, Judge, check_run, check_words
from tests.policy_oracle.sandbox import Sandbox


@dataclass(slots=True)
class Outcome:
    """What became of the texts."""

    texts: int = 0
    read: int = 0
    """Texts that were read as literal commands, whatever policy said; bash says which words they have."""
    allowed: int = 0
    different: set[str] = field(default_factory=set)
    """The allowed texts, each once."""
    ran: int = 0
    """Allowed texts that started programs in bash."""
    programs: int = 0
    """Programs that allowed texts started."""
    escapes: list[Escape] = field(default_factory=list)
    crashes: list[tuple[str, str]] = field(default_factory=list)
    """Texts that the judge failed at, and how."""
    slowest: float = 0.0
    """The longest that a text took to be judged, in seconds."""

    def add(self, other: Self) -> None:
        """Count what another part counted."""
        self.texts += other.texts
        self.read += other.read
        self.allowed += other.allowed
        self.different |= other.different
        self.ran += other.ran
        self.programs += other.programs
        self.escapes += other.escapes
        self.crashes += other.crashes
        self.slowest = max(self.slowest, other.slowest)


def fuzz(generator: Generator, texts: int, judge: Judge, sandbox: Sandbox) -> Outcome:
    """Judge so many texts of the generator and run in the sandbox what is allowed."""
    outcome = Outcome()
    for text in islice(generator, texts):
        outcome.add(check(text, judge, sandbox))
        if text in outcome.different:
            generator.keep(text)
    return outcome


def check(text: str, judge: Judge, sandbox: Sandbox) -> Outcome:
    """Judge one text; run it when it was allowed, and let bash say its words when it was only read."""
    outcome = Outcome(texts=1)
    begun = time.perf_counter()
    try:
        verdict = judge(text)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        outcome.crashes.append((text, repr(error)))
        return outcome
    finally:
        outcome.slowest = max(outcome.slowest, time.perf_counter() - begun)
    if verdict.commands is None:
        return outcome
    outcome.read = 1
    if isinstance(verdict, Allowed):
        outcome.allowed = 1
        outcome.different.add(text)
        programs, escapes = check_run(sandbox, text, verdict.commands)
        outcome.ran = int(programs > 0)
        outcome.programs = programs
        outcome.escapes += escapes
    else:
        outcome.escapes += check_words(sandbox, text, verdict.commands)
    return outcome
