"""The scripted model: plays the steps of a YAML script, for tests, demonstrations and CI.

A step is chosen by the newest user text and by how many steps the turn took since; a prompt that the script
does not know, or that breaks an expectation, fails the step with `ModelUnavailable` and says which line.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from itertools import chain, repeat

from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.model import AssistantStep, ModelEvent, Prompt, StepEnd, TextDelta, ToolOutput
from tyrum_gateway.models.reading import last_user_text, offered, steps_taken
from tyrum_gateway.models.script import Failure, Script, Step

_POLL_SECONDS = 0.01


class ScriptedModel:
    """Plays a script. Failures with `times` are counted over the life of the model."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._failed = Counter[str]()

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Play the step that fits the prompt.

        Raises:
            ModelUnavailable: The script says so, has no such step, or an expectation is broken.
        """
        step = self._choose(prompt)
        _check(step, prompt)
        failure = self._due(step)
        emitted = 0
        for delta in chain.from_iterable(repeat(step.deltas, step.repeat)):
            if failure is not None and emitted >= failure.after:
                break
            if step.delay_ms:
                await asyncio.sleep(step.delay_ms / 1000)
            yield TextDelta(delta)
            emitted += 1
        if step.delay_ms and not emitted:
            await asyncio.sleep(step.delay_ms / 1000)
        while step.barrier is not None and not step.barrier.exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(_POLL_SECONDS)
        if failure is not None:
            raise ModelUnavailable(
                failure.message, retryable=failure.retryable, usage=step.usage, script=step.place
            )
        yield StepEnd(step.calls, step.usage)

    def _choose(self, prompt: Prompt) -> Step:
        said, index = last_user_text(prompt), steps_taken(prompt)
        scenario = next((scenario for scenario in self._script.scenarios if scenario.matches(said)), None)
        if scenario is None:
            raise ModelUnavailable(f"the script has no scenario for `{said[:100]}`", retryable=False)
        if index >= len(scenario.steps):
            raise ModelUnavailable(
                f"the scenario at {scenario.steps[0].place} has no step {index + 1}", retryable=False
            )
        return scenario.steps[index]

    def _due(self, step: Step) -> Failure | None:
        failure = step.failure
        if failure is None or (failure.times is not None and self._failed[step.place] >= failure.times):
            return None
        self._failed[step.place] += 1
        return failure


def _check(step: Step, prompt: Prompt) -> None:
    expectation = step.expectation
    text = _text(prompt) if expectation.contains or expectation.absent else ""
    broken = [f"expected `{part[:80]}` in the prompt" for part in expectation.contains if part not in text]
    broken += [f"did not expect `{part[:80]}` in the prompt" for part in expectation.absent if part in text]
    if expectation.tools is not None and expectation.tools != offered(prompt):
        shown = ", ".join(sorted(offered(prompt))) or "none"
        broken.append(f"expected the tools {', '.join(sorted(expectation.tools)) or 'none'}, got {shown}")
    if broken:
        raise ModelUnavailable(f"{step.place}: {'; '.join(broken)}", retryable=False)


def _text(prompt: Prompt) -> str:
    parts = [prompt.instructions, prompt.conversation_state]
    for message in prompt.messages:
        match message:
            case AssistantStep(text=text, calls=calls):
                parts += [text, *(f"{call.tool} {call.arguments}" for call in calls)]
            case ToolOutput(content=content):
                parts.append(content)
            case _:
                parts.append(message.text)
    return "\n".join(parts)
