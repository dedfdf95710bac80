"""A list of models: the next is asked exactly when the one before is not available and said nothing."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from tests.models.prompts import prompt, said
from tyrum_gateway.domain.errors import (
    AnswerCutOff,
    AnswerMalformed,
    AnswerRefused,
    ModelUnavailable,
    PromptTooLong,
)
from tyrum_gateway.domain.model import ModelEvent, Prompt, StepEnd, TextDelta
from tyrum_gateway.domain.usage import NOTHING, UNKNOWN, Usage
from tyrum_gateway.models.first_available import FirstAvailable

BUSY = ModelUnavailable("main is busy", retryable=True, usage=NOTHING)
REST = ModelUnavailable("main is busy", retryable=True, retry_after=timedelta(seconds=30), usage=NOTHING)


@dataclass(slots=True)
class Played:
    """A model that says texts, and then fails or ends."""

    texts: Sequence[str] = ()
    failure: ModelUnavailable | None = None
    usage: Usage = field(default_factory=lambda: Usage(10, 2))
    hangs: bool = False
    asked: int = 0

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Play it."""
        del prompt
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        for text in self.texts:
            yield TextDelta(text)
        if self.failure is not None:
            raise self.failure
        yield StepEnd((), self.usage)


async def step(*models: Played, patience: float = 60.0) -> list[ModelEvent]:
    """Ask for one step."""
    return await again(FirstAvailable(list(zip(("main", "spare", "third"), models, strict=False)), patience))


async def again(model: FirstAvailable) -> list[ModelEvent]:
    """Ask for a step."""
    return [event async for event in model.generate(prompt(said("hello")))]


async def test_the_first_answers_while_it_is_there() -> None:
    """Nobody else is asked, and the step names it."""
    spare = Played()
    assert await step(Played(["Hi."]), spare) == [TextDelta("Hi."), StepEnd((), Usage(10, 2), "main")]
    assert not spare.asked


async def test_the_next_answers_where_the_first_is_unavailable() -> None:
    """Once, whole, and under its own name; what the first is not known to have used is not forgotten."""
    spare = Played(["Hi."])
    assert await step(Played(failure=BUSY), spare) == [TextDelta("Hi."), StepEnd((), Usage(10, 2), "spare")]
    broken = Played(failure=ModelUnavailable("broke off", retryable=True, usage=UNKNOWN))
    _, end = await step(broken, spare)
    assert isinstance(end, StepEnd)
    assert (end.usage.input_tokens, end.usage.complete) == (10, False)


@pytest.mark.parametrize(
    "answer",
    [
        ModelUnavailable("refused the key (HTTP 401)", retryable=False),
        ModelUnavailable("refused the request (HTTP 400)", retryable=False),
        AnswerRefused("declined", retryable=False),
        AnswerCutOff("cut off", retryable=False),
        AnswerMalformed("no object", retryable=True),
        PromptTooLong("too long", retryable=False),
    ],
)
async def test_a_refusal_is_an_answer(answer: ModelUnavailable) -> None:
    """What the first model refuses, cuts off or gets wrong is told as it is, and nobody else is asked."""
    spare = Played()
    with pytest.raises(type(answer)) as caught:
        await step(Played(failure=answer), spare)
    assert (caught.value, spare.asked) == (answer, 0)


async def test_nobody_goes_on_where_another_began() -> None:
    """After its first word a model's failure is the step's, also one that might pass."""
    spare = Played()
    with pytest.raises(ModelUnavailable, match="main is busy"):
        await step(Played(["Hi"], failure=BUSY), spare)
    assert not spare.asked


async def test_when_none_is_available_all_reasons_are_told() -> None:
    """Another attempt may help as long as one of the failures may pass."""
    refused = ModelUnavailable("spare refused the key (HTTP 401)", retryable=False, usage=NOTHING)
    with pytest.raises(ModelUnavailable) as caught:
        await step(Played(failure=BUSY), Played(failure=refused))
    assert caught.value.public == "main is busy; spare refused the key (HTTP 401)"
    assert (caught.value.retryable, caught.value.retry_after) == (True, None)


async def test_a_model_that_does_not_begin_leaves_time_for_the_next() -> None:
    """One that says nothing within its share of the step counts as unavailable; the last is waited for."""
    assert (await step(Played(hangs=True), Played(), patience=0.02))[-1] == StepEnd(
        (), Usage(10, 2, lower_bound=True), "spare"
    )


async def test_a_model_that_asks_to_be_left_alone_is() -> None:
    """Until then the next answers at once; when all want to be left alone they are asked all the same."""
    main, spare = Played(failure=REST), Played()
    model = FirstAvailable([("main", main), ("spare", spare)], 60.0)
    for _ in range(3):
        assert [event.model for event in await again(model) if isinstance(event, StepEnd)] == ["spare"]
    assert (main.asked, spare.asked) == (1, 3)
    spare.failure = REST
    with pytest.raises(ModelUnavailable):
        await again(model)
    with pytest.raises(ModelUnavailable, match="; ") as caught:
        await again(model)
    assert caught.value.retry_after == timedelta(seconds=30)
    assert main.asked == 2
