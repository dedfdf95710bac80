"""`tyrum policy`: what calls may do, and what humans permitted besides."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tyrum_gateway.cli import overrides
from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.options import Output, sub_app
from tyrum_gateway.cli.output import Format, emit, fields, note, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tyrum_gateway.cli.rehearsal import Judged
    from tyrum_gateway.config import Problem
    from tyrum_gateway.config.cases import Case

app = sub_app("Judge calls by policy; list and revoke permissions.")
app.add_typer(overrides.app, name="overrides")

Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle",
        metavar="FILE",
        help="Configuration file, or one with only `rules`. Default: TYRUM_CONFIG, else the quickstart.",
    ),
]
Workspace = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Directory in which relative programs and files are looked for. Default: an empty one.",
    ),
]


@app.command("test")
def check_cases(
    cases: Annotated[Path, typer.Argument(metavar="CASES", help="YAML file with `cases`.")],
    bundle: Bundle = None,
    workspace: Workspace = None,
    output: Output = Format.TEXT,
) -> None:
    """Judge calls by rules and print each that is not judged as expected; nothing runs.

    A difference is one line, `file:line:column: name: expected …, got …`, and the exit code is then 1. What
    seems to decide nothing in the rules is told as `warning:`, and changes no exit code.
    """
    from tyrum_gateway.cli import rehearsal  # noqa: PLC0415 - loads the parser of shell text
    from tyrum_gateway.config import ConfigProblems, Problem, config_file  # noqa: PLC0415
    from tyrum_gateway.config.cases import load_cases  # noqa: PLC0415
    from tyrum_gateway.config.rule_file import load_rules  # noqa: PLC0415

    try:
        rules = load_rules(config_file(bundle), environment=os.environ, replaceable=rehearsal.replaceable)
        listed = load_cases(cases)
    except ConfigProblems as problems:
        raise _unusable(problems.problems) from None
    strange = [
        Problem(str(cases), case.place, ("cases", index, "agent"), "dangling_reference", why)
        for index, case in enumerate(listed)
        if (why := rules.unknown(case.agent))
    ]
    if strange:
        raise _unusable(strange)
    for warning in rules.warnings if output is not Format.JSON else ():
        note(f"warning: {warning}")
    with rehearsal.rehearsing(rules, workspace) as rehearsed:
        judged = [
            (
                case,
                rehearsed.judge(
                    case.tool, json.dumps(case.arguments), agent=case.agent, provenance=case.provenance
                ),
            )
            for case in listed
        ]
    wrong = [(case, found) for case, found in judged if not _as_expected(case, found)]
    match output:
        case Format.TEXT:
            for case, found in wrong:
                say(_difference(cases, case, found))
        case Format.JSONL:
            for case, found in wrong:
                emit(_difference_json(case, found), output)
        case Format.JSON:
            emit(
                {
                    "cases": len(listed),
                    "differences": [_difference_json(case, found) for case, found in wrong],
                    "warnings": [warning.as_json() for warning in rules.warnings],
                },
                output,
            )
    if wrong:
        raise Failure(f"{len(wrong)} of {len(listed)} cases differ", hint="tyrum policy explain TOOL CALL")
    if output is Format.TEXT:
        say(f"{cases}: {len(listed)} case{'' if len(listed) == 1 else 's'} as expected")


@app.command()
def explain(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool, such as process.run.")],
    call: Annotated[str, typer.Argument(metavar="CALL", help="Arguments as JSON, or shell text.")],
    *,
    bundle: Bundle = None,
    workspace: Workspace = None,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Agent that makes the call.")] = "default",
    untrusted: Annotated[
        bool, typer.Option("--untrusted", help="Judge as after the output of a tool.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Show what rules say to one call, and what they see of it; nothing runs."""
    from tyrum_gateway.cli import rehearsal  # noqa: PLC0415 - loads the parser of shell text
    from tyrum_gateway.config import ConfigProblems, config_file  # noqa: PLC0415
    from tyrum_gateway.config.rule_file import load_rules  # noqa: PLC0415

    try:
        rules = load_rules(config_file(bundle), environment=os.environ, replaceable=rehearsal.replaceable)
    except ConfigProblems as problems:
        raise _unusable(problems.problems) from None
    if why := rules.unknown(agent):
        raise Failure(f"--agent: {why}", code=ExitCode.USAGE)
    with rehearsal.rehearsing(rules, workspace) as rehearsed:
        judged = rehearsed.judge(
            tool,
            rehearsal.arguments_of(call),
            agent=agent,
            provenance="untrusted" if untrusted else "trusted",
        )
    told = rehearsal.explained(tool, judged)
    if output is Format.TEXT:
        fields(rehearsal.lines(told))
    else:
        emit(told, output)


def _unusable(problems: "Sequence[Problem]") -> Failure:
    """Print what is wrong with a file, and return the failure that ends the command."""
    for problem in problems:
        say(str(problem))
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'} in the file"
    return Failure(count, code=ExitCode.CONFIG_INVALID)


def _as_expected(case: "Case", found: "Judged") -> bool:
    rule = found.verdict.rule_id if found.verdict is not None else None
    return case.expect == found.decision and (case.rule is None or case.rule == rule)


def _difference(file: Path, case: "Case", found: "Judged") -> str:
    expected = case.expect if case.rule is None else f"{case.expect} by {case.rule}"
    got = found.decision if found.verdict is None else f"{found.decision} by {found.verdict.rule_id}"
    reason = found.problem if found.verdict is None else found.verdict.reason
    name = case.name or json.dumps(case.arguments, ensure_ascii=False)[:80]
    return f"{file}:{case.place}: {name}: expected {expected}, got {got} ({reason})"


def _difference_json(case: "Case", found: "Judged") -> dict[str, object]:
    verdict = found.verdict
    return {
        "line": case.place.line,
        "column": case.place.column,
        "name": case.name,
        "arguments": case.arguments,
        "expected": case.expect,
        "expected_rule": case.rule,
        "decision": found.decision,
        "rule": None if verdict is None else verdict.rule_id,
        "reason": found.problem if verdict is None else verdict.reason,
    }
