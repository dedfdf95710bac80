"""What went wrong at a model's server, in our own words, and whether another attempt may help.

Invariant: nothing that a server wrote becomes part of a message: a status code is all that is quoted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum, auto

from tyrum_gateway.domain.errors import (
    AnswerCutOff,
    AnswerMalformed,
    AnswerRefused,
    ModelUnavailable,
    PromptTooLong,
)
from tyrum_gateway.domain.usage import NOTHING, Usage

_PASSING = frozenset({408, 409, 425, 429})
"""Statuses below 500 that another attempt may not meet again."""
_LASTING = frozenset({501, 505})


class Ending(Enum):
    """How a stream ended, when not with a whole step."""

    BROKEN_OFF = auto()
    """Without the protocol's end, or with an end that says nothing we know."""
    MALFORMED = auto()
    """Properly, but with a call whose arguments are no JSON object."""
    CUT_OFF = auto()
    """At the limit for one answer."""
    REFUSED = auto()
    """With a refusal."""
    TOO_LONG = auto()
    """At the end of the model's context."""
    FAILED = auto()
    """With an error that may pass."""
    REJECTED = auto()
    """With an error that will not pass."""
    UNREADABLE = auto()
    """In something that is not the protocol."""
    PAUSED = auto()
    """With a request to go on in a way that is not supported."""


class StreamEnded(Exception):
    """A stream has ended without a step."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.name)
        self.ending = ending


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of one configured model."""

    model: str
    """Name in the configuration."""
    secret: str
    """Name of the secret that holds its key."""
    proxy: str = ""
    """`HOST:PORT`; empty without one."""
    login: str | None = None
    """Name of the secret that holds the login for the proxy."""

    def of_ending(self, ending: Ending, usage: Usage, *, emitted: bool, said: bool) -> ModelUnavailable:
        """Describe a stream that ended without a step.

        Args:
            ending: How.
            usage: What the server told until then.
            emitted: Whether any text or part of a call had come.
            said: Whether any text had come.
        """
        match ending:
            case Ending.BROKEN_OFF:
                return self._failure("the answer of {model} broke off", usage, retryable=not emitted)
            case Ending.FAILED:
                return self._failure(
                    "the server of {model} reported an error in its answer", usage, retryable=not emitted
                )
            case Ending.UNREADABLE:
                return self._failure(
                    "the answer of {model} is not in the protocol of its kind", usage, retryable=not emitted
                )
            case Ending.MALFORMED:
                # The step is whole and nobody has seen or run any of it, unless there was text.
                text = "{model} made a call whose arguments are no JSON object; nothing was executed"
                return AnswerMalformed(self._named(text), retryable=not said, usage=usage)
            case Ending.REJECTED:
                return self._failure("the server of {model} refused to go on", usage, retryable=False)
            case Ending.PAUSED:
                return self._failure(
                    "{model} paused its answer to go on later, which is not supported", usage, retryable=False
                )
            case Ending.CUT_OFF:
                text = "{model} reached the limit for one answer (`max_output_tokens`, or the server's own)"
                return AnswerCutOff(self._named(text), retryable=False, usage=usage)
            case Ending.REFUSED:
                return AnswerRefused(
                    self._named("{model}, or a filter at its server, declined to answer"),
                    retryable=False,
                    usage=usage,
                )
            case Ending.TOO_LONG:
                return self.too_long(usage)

    def of_status(
        self, status: int, headers: Mapping[str, str], *, too_long: bool = False
    ) -> ModelUnavailable:
        """Describe an answer that is no stream.

        Args:
            status: HTTP status, not 2xx.
            headers: Of the answer, with names in lower case.
            too_long: Whether the server says that the prompt does not fit.
        """
        if status in {401, 403}:
            return self._refused(
                f"the server of {{model}} refused the key in the secret `{self.secret}`", status
            )
        if too_long or status == 413:
            return self.too_long(NOTHING)
        if 300 <= status < 400:
            return self._refused("the server of {model} redirects, which is not followed", status)
        passing = _passes(status)
        match headers.get("x-should-retry"):
            case "true":
                passing = True
            case "false":
                passing = False
            case _:
                pass
        if not passing:
            return self._refused("the server of {model} refused the request", status)
        busy = "is busy" if status in {429, 503, 529} else "failed"
        return ModelUnavailable(
            self._named(f"the server of {{model}} {busy} (HTTP {status})"),
            retryable=True,
            retry_after=retry_after(headers),
            usage=NOTHING,
        )

    def unreachable(self, *, untrusted: bool) -> ModelUnavailable:
        """Describe a request that got no answer.

        Args:
            untrusted: Whether the server's certificate was not accepted.
        """
        if untrusted:
            text = (
                "the certificate of the server of {model} is not trusted; if it has an authority of its own, "
                "the operator names it as the model's `ca_file`"
            )
            return ModelUnavailable(self._named(text), retryable=False, usage=NOTHING)
        text = "the server of {model} cannot be reached"
        return ModelUnavailable(self._named(text), retryable=True, usage=NOTHING)

    def of_proxy(self, status: int | None, *, untrusted: bool) -> ModelUnavailable:
        """Describe a request that did not get past the proxy.

        Args:
            status: What the proxy answered; None: it could not be asked.
            untrusted: Whether its certificate was not accepted.
        """
        proxy = f"the proxy `{self.proxy}` of {{model}}"
        if untrusted:
            text = (
                f"the certificate of {proxy} is not trusted; the operating system's authorities vouch for it"
            )
            return ModelUnavailable(self._named(text), retryable=False, usage=NOTHING)
        if status is None:
            text = f"{proxy} cannot be reached, or gives no answer"
            return ModelUnavailable(self._named(text), retryable=True, usage=NOTHING)
        if status == 407:
            why = (
                "asks for a login, which the operator names as the model's `proxy_login`"
                if self.login is None
                else f"refused the login in the secret `{self.login}`"
            )
            return self._refused(f"{proxy} {why}", status)
        if _passes(status):
            text = f"{proxy} did not reach the server (HTTP {status})"
            return ModelUnavailable(self._named(text), retryable=True, usage=NOTHING)
        return self._refused(f"{proxy} does not let the request through to the server", status)

    def too_long(self, usage: Usage) -> ModelUnavailable:
        """Describe a conversation that no longer fits."""
        return PromptTooLong(
            self._named("the conversation does not fit the context of {model}; begin a new one"),
            retryable=False,
            usage=usage,
        )

    def unusable(self, secret: str, why: str) -> ModelUnavailable:
        """Describe a secret that cannot be had or sent; `why` names no value."""
        text = self._named(f"the secret `{secret}` of {{model}}: ")
        return ModelUnavailable(text + why, retryable=False, usage=NOTHING)

    def _refused(self, text: str, status: int) -> ModelUnavailable:
        return ModelUnavailable(self._named(f"{text} (HTTP {status})"), retryable=False, usage=NOTHING)

    def _failure(self, text: str, usage: Usage, *, retryable: bool) -> ModelUnavailable:
        return ModelUnavailable(self._named(text), retryable=retryable, usage=usage)

    def _named(self, text: str) -> str:
        return text.replace("{model}", f"the model `{self.model}`")


def _passes(status: int) -> bool:
    return status in _PASSING or (status >= 500 and status not in _LASTING)


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Read how long a server asks to be left alone; None when it does not say, or not in a way that we know.

    Args:
        headers: With names in lower case.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            seconds = float(text) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and 0 <= seconds <= timedelta.max.total_seconds() / 2:
            return timedelta(seconds=seconds)
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(moment - datetime.now(UTC), timedelta(0))
