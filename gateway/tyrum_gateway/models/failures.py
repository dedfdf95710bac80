"""What went wrong at a model's server: its cause, and whether another attempt or another model may help.

Invariant: what a server wrote is part of a message only as `server_words` shows it, without any part of a
secret and within a bound, and never where it refuses a key.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from tyrum_gateway.models import server_words
from tyrum_gateway.models.reaching import LASTING, TOLD, Reach

_PASSING = frozenset({408, 409, 425, 429})
"""Statuses below 500 that another attempt may not meet again."""
_LASTING = frozenset({501, 505})


class Ending(Enum):
    """How a stream ended, when not with a whole step."""

    BROKEN_OFF = auto()
    """Without the protocol's end."""
    MALFORMED = auto()
    """Properly, but with a call whose arguments are no JSON object."""
    NAMELESS = auto()
    """Properly, but with a call that names no function."""
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
    NOT_TEXT = auto()
    """In bytes that are no characters."""
    NO_STREAM = auto()
    """Before it began: the answer is none."""
    PAUSED = auto()
    """With a request to go on in a way that is not supported."""


class StreamEnded(Exception):
    """A stream has ended without a step.

    Args:
        ending: How.
        said: What the server said of it, as it came.
        content_type: Of an answer that is no stream.
    """

    def __init__(self, ending: Ending, said: str = "", content_type: str = "") -> None:
        super().__init__(ending.name)
        self.ending = ending
        self.said = said
        self.content_type = content_type


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of one configured model."""

    model: str
    """Name in the configuration."""
    secret: str
    """Name of the secret that holds its key."""
    address: str = ""
    """`HOST:PORT` of the server."""
    base_url: str = ""
    """As configured."""
    proxy: str = ""
    """`HOST:PORT`; empty without one."""
    login: str | None = None
    """Name of the secret that holds the login for the proxy."""
    mask: Callable[[str], str] = field(default=str, repr=False)
    """Masks secrets in what a server says."""

    def of_ending(self, ended: StreamEnded, usage: Usage, *, emitted: bool, said: bool) -> ModelUnavailable:
        """Describe a stream that ended without a step.

        Args:
            ended: How.
            usage: What the server told until then.
            emitted: Whether any text or part of a call had come.
            said: Whether any text had come.
        """
        match ended.ending:
            case Ending.BROKEN_OFF:
                return self._cut("the answer of {model} broke off", usage, emitted=emitted)
            case Ending.FAILED:
                text = self._quoting("the server of {model} reported an error in its answer", ended.said)
                return self._cut(text, usage, emitted=emitted)
            case Ending.UNREADABLE:
                return self._cut(
                    "the answer of {model} is not in the protocol of its kind", usage, emitted=emitted
                )
            case Ending.NOT_TEXT:
                text = (
                    "the answer of {model} holds bytes that are no characters (UTF-8); nothing was executed"
                )
                return self._cut(text, usage, emitted=emitted)
            case Ending.NO_STREAM:
                return self._failure(self._no_stream(ended), usage, retryable=False)
            case Ending.NAMELESS:
                text = "{model} made a call that names no function; nothing was executed"
                return AnswerMalformed(
                    self._named(text), retryable=not said, usage=usage, address=self.address
                )
            case Ending.MALFORMED:
                # The step is whole and nobody has seen or run any of it, unless there was text.
                text = "{model} made a call whose arguments are no JSON object; nothing was executed"
                return AnswerMalformed(
                    self._named(text), retryable=not said, usage=usage, address=self.address
                )
            case Ending.REJECTED:
                text = self._quoting("the server of {model} refused to go on", ended.said)
                return self._failure(text, usage, retryable=False)
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

    def of_status(self, status: int, headers: Mapping[str, str], body: object = None) -> ModelUnavailable:
        """Describe an answer with a status of failure.

        Args:
            status: HTTP status, not 2xx.
            headers: Of the answer, with names in lower case.
            body: Of the answer, or of the error in it.
        """
        if status in {401, 403}:
            return self._refused(
                f"the server of {{model}} refused the key in the secret `{self.secret}`", status
            )
        if status == 413 or (status != 429 and server_words.says_too_long(body)):
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
        said = server_words.message_of(body)
        if not passing:
            what = "knows no such model or address" if status == 404 else "refused the request"
            where = f"; `base_url` is `{self.base_url}`" if status in {404, 405} else ""
            text = self._quoting(f"the server of {{model}} {what} (HTTP {status}{where})", said)
            return self._failure(text, NOTHING, retryable=False)
        busy = "is busy" if status in {429, 503, 529} else "failed"
        return ModelUnavailable(
            self._named(self._quoting(f"the server of {{model}} {busy} (HTTP {status})", said)),
            retryable=True,
            retry_after=retry_after(headers),
            usage=NOTHING,
            address=self.address,
        )

    def unreachable(self, reach: Reach) -> ModelUnavailable:
        """Describe a request that got no answer."""
        why = TOLD[reach].format(address=self.address)
        text = f"the server of {{model}} cannot be reached: {why}"
        return self._failure(text, NOTHING, retryable=reach not in LASTING)

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
            return self._failure(text, NOTHING, retryable=False)
        if status is None:
            return self._failure(f"{proxy} cannot be reached, or gives no answer", NOTHING, retryable=True)
        if status == 407:
            why = (
                "asks for a login, which the operator names as the model's `proxy_login`"
                if self.login is None
                else f"refused the login in the secret `{self.login}`"
            )
            return self._refused(f"{proxy} {why}", status)
        if _passes(status):
            return self._failure(f"{proxy} did not reach the server (HTTP {status})", NOTHING, retryable=True)
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

    def _no_stream(self, ended: StreamEnded) -> str:
        kind = server_words.shown(ended.content_type, self.mask, 80) or "none"
        text = (
            f"the answer of {{model}} is no event stream (content type `{kind}`); `base_url` is "
            f"`{self.base_url}`, which mostly ends in `/v1` for kind `openai`"
        )
        return self._quoting(text, ended.said)

    def _quoting(self, text: str, said: str) -> str:
        """Add what a server says."""
        shown = server_words.shown(said, self.mask)
        return f"{text}. It says: {shown}" if shown else text

    def _cut(self, text: str, usage: Usage, *, emitted: bool) -> ModelUnavailable:
        """Describe an answer that ended; another attempt may help when nothing of it had come."""
        return self._failure(text, usage, retryable=not emitted)

    def _refused(self, text: str, status: int) -> ModelUnavailable:
        return self._failure(f"{text} (HTTP {status})", NOTHING, retryable=False)

    def _failure(self, text: str, usage: Usage, *, retryable: bool) -> ModelUnavailable:
        return ModelUnavailable(self._named(text), retryable=retryable, usage=usage, address=self.address)

    def _named(self, text: str) -> str:
        return text.replace("{model}", f"the model `{self.model}`", 1)


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
