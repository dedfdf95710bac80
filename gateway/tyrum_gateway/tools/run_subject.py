"""What an approval of `process.run` is about: canonical JSON for machines and a text for people.

Invariant: everything that determines the effect stands in the JSON, so that equal digests mean equal effects;
the text begins with what decides, hidden characters escaped, and leaves to the JSON what only identifies.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tyrum_gateway.domain.approval import Subject
from tyrum_gateway.domain.binding import Candidate
from tyrum_gateway.domain.canonical import Value, canonical_json
from tyrum_gateway.domain.process import ProcessRun
from tyrum_gateway.tools.inner import inner_commands
from tyrum_gateway.tools.isolation import Boundary
from tyrum_gateway.tools.visible import is_plain, quoted
from tyrum_provider_host.claims import worth

SUMMARY_STDIN = 2_000
"""Characters of standard input that the text shows; the rest is identified by its digest."""

_SHOWN_DIGEST = 12
_SHOWN_WORDS = 200
"""Characters of an inner command that are shown; all of them stand in the arguments."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A resolved call with what is only of interest to whoever approves it."""

    tool: str
    run: ProcessRun
    shell: str | None
    """Text that a shell runs."""
    given_env: Mapping[str, str]
    """The part of the environment that the model chose."""
    open_operands: tuple[str, ...]
    candidate: Candidate
    boundary: Boundary
    text: str | None = None
    """Shell text as it was given, also when it needs no shell."""
    unclear: str = ""
    """Why rules cannot judge the text."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Words of the commands of shell text, as far as they are known; none of a call that no shell runs."""
    started: int = 0
    """How many of the run's operands, from the first, are programs that the shell starts."""
    may_change: str = ""
    """Why the program may be another one when it runs."""
    unfixed: frozenset[str] = frozenset()
    """Paths of started programs that may be others when the shell opens them."""
    replaceable: tuple[str, ...] = ()
    """How others than root can put other programs in the place of these."""


def subject_of(shown: Shown) -> Subject:
    """Write down what is asked."""
    return Subject(canonical_json(_machine(shown)), _people(shown))


def _machine(shown: Shown) -> Value:
    run = shown.run
    return {
        "tool": shown.tool,
        "program": {"path": run.program.path, "sha256": run.program.sha256, "fixed": not shown.may_change},
        "argv": list(run.argv),
        "shell": shown.shell is not None,
        "cwd": run.cwd,
        "env": {
            "base": {name: value for name, value in run.env.items() if name not in shown.given_env},
            "given": dict(shown.given_env),
        },
        "stdin": {"sha256": hashlib.sha256(run.stdin).hexdigest(), "bytes": len(run.stdin)},
        "secrets": list(run.secrets),
        "operands": [{"path": operand.path, "sha256": operand.sha256} for operand in run.operands],
        "open_operands": list(shown.open_operands),
        "workspace": {
            "path": run.workspace.path,
            # As text: device and inode numbers may exceed what every JSON reader keeps exact.
            "device": str(run.workspace.device),
            "inode": str(run.workspace.inode),
        },
        "limits": {
            "wall_time_ms": _milliseconds(run.limits.wall_time),
            "output_bytes": str(run.limits.output_bytes),
            "kill_grace_ms": _milliseconds(run.limits.kill_grace),
        },
        "required_claims": list(run.required_claims),
        "boundary": shown.candidate.shown(),
        "run_uid": shown.boundary.run_uid,
    }


def _people(shown: Shown) -> str:
    run, limits = shown.run, shown.run.limits
    lines = [f"program      {quoted(run.program.path)}  ({_worth(run.program.sha256, shown.may_change)})"]
    if shown.shell is None:
        lines.append(f"arguments    {' '.join(quoted(argument) for argument in run.argv)}")
    if shown.text is not None:
        lines.append("shell text" if shown.shell is not None else "given as")
        lines += _block(shown.text)
    if shown.unclear:
        lines.append(f"unclear      {shown.unclear}; only the content of what is listed here is fixed")
    lines += [f"caution      {why}; it can be approved once, not for good" for why in shown.replaceable]
    started, named = run.operands[: shown.started], run.operands[shown.started :]
    again = dict.fromkeys(shown.unfixed, "the shell opens it again")
    lines += [
        f"starts       {quoted(program.path)}  ({_worth(program.sha256, again.get(program.path, ''))})"
        for program in started
    ]
    lines += _inner_lines(shown)
    lines.append(f"directory    {quoted(run.cwd)} in {quoted(run.workspace.path)}")
    lines += [f"env          {name}={quoted(value)}" for name, value in sorted(shown.given_env.items())]
    always = sorted(set(run.env) - set(shown.given_env))
    lines.append(f"environment  {' '.join(f'{name}={quoted(run.env[name])}' for name in always)}")
    lines += _stdin_lines(run.stdin)
    if run.secrets:
        lines.append(f"secrets      {', '.join(run.secrets)}  (as environment variables)")
    lines += [f"file         {quoted(operand.path)}  ({_fixed(operand.sha256)})" for operand in named]
    lines += [
        f"file         {quoted(path)}  (content not fixed: it may change before the command runs)"
        for path in shown.open_operands
    ]
    lines.append(
        f"limits       {_duration(limits.wall_time)} of wall time, {_size(limits.output_bytes)} of output, "
        f"{_duration(limits.kill_grace)} between request to end and kill"
    )
    lines.append(f"power        {shown.boundary.describe()}")
    candidate = shown.candidate
    proved = worth(dict(claim.split("=", 1) for claim in candidate.claims))
    lines.append(
        f"boundary     profile {candidate.profile}, provider {candidate.provider}: {proved}"
        f"  (tyrum providers explain {candidate.provider})"
    )
    return "\n".join(lines)


def _inner_lines(shown: Shown) -> list[str]:
    """Tell of commands that only the arguments name: what is approved is more than the first program."""
    inner = inner_commands(shown.commands or [shown.run.argv])
    lines = [
        f"starts       {_words(words)}  (named by {by}; content not fixed)" for by, words in inner.commands
    ]
    return lines + [f"unclear      {why if is_plain(why) else quoted(why)}" for why in inner.unclear]


def _words(words: Sequence[str]) -> str:
    text = " ".join(quoted(word) for word in words)
    return text if len(text) <= _SHOWN_WORDS else f"{text[:_SHOWN_WORDS]}… ({len(text)} characters)"


def _stdin_lines(stdin: bytes) -> list[str]:
    if not stdin:
        return []
    text = stdin.decode()
    more = f", the first {SUMMARY_STDIN} characters" if len(text) > SUMMARY_STDIN else ""
    head = f"stdin        {len(stdin)} bytes ({_fixed(hashlib.sha256(stdin).hexdigest())}){more}"
    return [head, *_block(text[:SUMMARY_STDIN])]


def _worth(sha256: str, may_change: str) -> str:
    """Say whether the content that was looked at is what will run."""
    return f"may change after approval: {may_change}" if may_change else _fixed(sha256)


def _fixed(sha256: str) -> str:
    """Say that content is fixed, with the beginning of its digest; the JSON has all of it."""
    return f"content fixed, sha256 {sha256[:_SHOWN_DIGEST]}…"


def _block(text: str) -> list[str]:
    """Show lines as they are after `|`, and those with hidden characters escaped after `$`."""
    return [f"  | {line}" if is_plain(line) else f"  $ {quoted(line)}" for line in text.split("\n")]


def _milliseconds(value: timedelta) -> int:
    return value // timedelta(milliseconds=1)


def _duration(value: timedelta) -> str:
    """Write a duration exactly, in the largest unit that is whole; below a minute in seconds."""
    milliseconds = _milliseconds(value)
    for unit, length in (("h", 3_600_000), ("min", 60_000)):
        if milliseconds and milliseconds % length == 0:
            return f"{milliseconds // length} {unit}"
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole}{f'.{rest:03}'.rstrip('0') if rest else ''} s"


def _size(value: int) -> str:
    """Write a number of bytes exactly, in the largest unit that is whole."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value and value % 1024**power == 0:
            return f"{value // 1024**power} {unit}"
    return f"{value} bytes"
