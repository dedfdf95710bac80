"""The offline model: deterministic answers without a key or a network, at the pace of somebody who speaks.

It understands directives and reports what came back. Tool output is quoted as data and never followed.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence

from tyrum_gateway.domain.model import CallRequest, ModelEvent, Prompt, StepEnd, TextDelta, ToolOutput
from tyrum_gateway.domain.usage import NOTHING
from tyrum_gateway.models.directive import Command, ShellText, parse_run
from tyrum_gateway.models.reading import last_user_text, offered, outputs

PROCESS_RUN = "process.run"
_EXCERPT_LINES = 12
_EXCERPT_CHARACTERS = 1_200
_WORDS_PER_DELTA = 4
_PACE = 0.01
"""Seconds between deltas: all at once, they would reach a client as one, or only with the whole message."""

_PIECE = re.compile(rf"(?:\s*\S+){{1,{_WORDS_PER_DELTA}}}\s*")


class OfflineModel:
    """Answers from the prompt alone: the same prompt gives the same step."""

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Produce one step; never fails."""
        text, calls = _step(prompt)
        for number, piece in enumerate(_PIECE.findall(text)):
            if number:
                await asyncio.sleep(_PACE)
            yield TextDelta(piece)
        yield StepEnd(calls, NOTHING)


def _step(prompt: Prompt) -> tuple[str, tuple[CallRequest, ...]]:
    returned = outputs(prompt)
    if returned:
        return _report(returned), ()
    said = last_user_text(prompt)
    run = parse_run(said)
    if run is None:
        return _introduction(said, prompt), ()
    if PROCESS_RUN not in offered(prompt):
        return (
            f"I cannot run commands here: the tool {PROCESS_RUN} is not offered to this agent. It needs an "
            "isolation profile, whose provider is admitted and proves the claims that the profile requires, "
            "and a policy that does not deny the tool outright. `tyrum doctor` checks provider and claims.",
            (),
        )
    match run:
        case Command(argv=argv):
            return "Running the command.", (_call({"argv": list(argv)}),)
        case ShellText(text=text):
            return "Running the shell text.", (_call({"shell": text}),)


def _call(arguments: dict[str, object]) -> CallRequest:
    return CallRequest(PROCESS_RUN, json.dumps(arguments, ensure_ascii=False))


def _introduction(said: str, prompt: Prompt) -> str:
    lead = "/run needs a command, such as `/run uname -a`." if said.strip() == "/run" else ""
    if PROCESS_RUN in offered(prompt):
        directives = (
            "I understand one directive: `/run COMMAND` runs a command through the policy. Shell text works, "
            "too: plain commands joined by pipes and their like are judged one by one, any other text asks."
        )
    else:
        directives = (
            f"My one directive, `/run COMMAND`, needs {PROCESS_RUN}, which is not offered to this agent."
        )
    return " ".join(filter(None, [lead or "This is the offline model; it needs no key.", directives]))


def _report(returned: Sequence[ToolOutput]) -> str:
    return "\n\n".join(_describe(output) for output in returned)


def _describe(output: ToolOutput) -> str:
    outcome, _, rest = output.content.partition("\n")
    if outcome.startswith("denied"):
        return f"The call of {output.tool} was {outcome.rstrip('.')}. I will not try another way."
    text = f"{output.tool} came back: {outcome.rstrip('.')}."
    excerpt = _excerpt(rest)
    return f"{text}\n\n{excerpt}" if excerpt else text


def _excerpt(text: str) -> str:
    shown = text.strip("\n")[:_EXCERPT_CHARACTERS]
    lines = shown.split("\n")[:_EXCERPT_LINES] if shown else []
    quoted = [f"> {line}" for line in lines]
    if "\n".join(lines) != text.strip("\n"):
        quoted.append("> …")
    return "\n".join(quoted)
