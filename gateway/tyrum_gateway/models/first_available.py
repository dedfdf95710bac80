"""Several models in the operator's order: the next is asked when the one before is not available.

Invariants: one model answers a step, from its first word to its end; what a model refuses, cuts off or gets
wrong is its answer, and no other one is asked about it.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

import structlog

from tyrum_gateway.domain.errors import ModelUnavailable
from tyrum_gateway.domain.model import Model, ModelEvent, Prompt, StepEnd
from tyrum_gateway.domain.usage import NOTHING

log = structlog.get_logger(__name__)

LONGEST_REST = 60.0
"""Seconds for which a model that asks to be left alone is passed over at most."""


class FirstAvailable:
    """Asks models one after another until one answers."""

    def __init__(self, models: Sequence[tuple[str, Model]], step_seconds: float) -> None:
        """Prepare it.

        Args:
            models: With their names, in the order in which they are asked; at least one.
            step_seconds: Time of one attempt at a step. A model that has not begun to answer after its
                share of it counts as unavailable, unless it is the last.
        """
        self._models = models
        self._patience = step_seconds / len(models)
        self._rests: dict[str, float] = {}

    async def generate(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Produce one step, which says by its model's name who answered.

        Raises:
            ModelUnavailable: None is available, or the one that answered could not complete the step.
        """
        order, failed = self._order(), list[ModelUnavailable]()
        for position, (name, model) in enumerate(order):
            last, begun = position == len(order) - 1, False
            bound = asyncio.timeout(None if last else self._patience)
            try:
                async with aclosing(model.generate(prompt)) as events:
                    async with bound:
                        event = await anext(events, None)
                    while event is not None:
                        begun = True
                        yield self._of(event, name, failed)
                        event = await anext(events, None)
                return
            except TimeoutError:
                if not bound.expired():
                    raise
                why = f"the model `{name}` has not begun to answer within {self._patience:g} s"
                error = ModelUnavailable(why, retryable=True)
            except ModelUnavailable as unavailable:
                error = unavailable
            self._note(name, error)
            failed.append(error)
            if last or begun or not _is_unavailable(error):
                raise _together(failed)
            log.warning("model_passed_over", **(error.context | {"model": name, "reason": error.public}))

    def _order(self) -> list[tuple[str, Model]]:
        """List the models to ask: those that asked to be left alone only when there is no other."""
        now = asyncio.get_running_loop().time()
        ready = [(name, model) for name, model in self._models if self._rests.get(name, now) <= now]
        return ready or list(self._models)

    def _note(self, name: str, error: ModelUnavailable) -> None:
        if error.retry_after is not None:
            rest = min(error.retry_after.total_seconds(), LONGEST_REST)
            self._rests[name] = asyncio.get_running_loop().time() + rest

    def _of(self, event: ModelEvent, name: str, failed: Sequence[ModelUnavailable]) -> ModelEvent:
        if not isinstance(event, StepEnd):
            return event
        usage = sum((error.usage for error in failed), NOTHING) + event.usage if failed else event.usage
        return replace(event, model=name, usage=usage)


def _is_unavailable(error: ModelUnavailable) -> bool:
    """Tell a model that was not there from one that answered badly, which has a class of its own."""
    return error.retryable and type(error) is ModelUnavailable


def _together(failed: Sequence[ModelUnavailable]) -> ModelUnavailable:
    """Make one failure of those of all models that were asked."""
    *earlier, last = failed
    if not earlier:
        return last
    rests = [error.retry_after for error in failed]
    known = [rest for rest in rests if rest is not None]
    return type(last)(
        "; ".join(error.public for error in failed),
        retryable=any(error.retryable for error in failed),
        retry_after=min(known) if len(known) == len(rests) else None,
        usage=sum((error.usage for error in failed), NOTHING),
        **last.context,
    )
