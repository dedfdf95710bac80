"""What a model's server says of an error: found in its forms, understood where it matters, made safe to show.

Invariant: a word of a server is shown without any part of a secret, on one line, within a bound, and with
what cannot be seen as escapes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

MOST = 200
"""Characters of a server that are shown."""

_TEXTS = ("message", "detail", "error", "error_description", "msg", "title", "reason")
_DEPTH = 6
_PART = 8
"""Characters of a secret that are masked by themselves: servers shorten keys, and texts are cut."""
_SHORTEST = 4
"""Characters of a secret that is masked at all, as elsewhere: shorter ones are ordinary text."""

_CODES = frozenset(
    {
        *("context_length_exceeded", "string_above_max_length", "request_too_large"),
        *("exceed_context_size_error", "context_window_exceeded", "contextwindowexceedederror"),
    }
)
_TOO_LONG = re.compile(
    "|".join(
        (
            r"maximum context length",  # OpenAI, vLLM, SGLang, Mistral
            r"context length is only \d",  # vLLM
            r"longer than the (maximum )?model('s)?( context)? length",  # vLLM, SGLang
            r"exceeds? (the |its )?(available |maximum |model's )*context (size|length|window)",  # llama.cpp
            r"exceed(s|ed)? (the )?max(imum)? context length|input length exceeds",  # Ollama
            r"(prompt|input) (is )?too long|exceed context limit",  # Anthropic, Bedrock, Ollama
            r"context ?window ?exceeded",  # LiteLLM
            r"exceeds the maximum number of tokens allowed",  # Gemini
            r"too large for model with \d+ maximum context",  # Mistral
            r"context the overflows|greater than the context length",  # LM Studio
        )
    ),
    re.IGNORECASE,
)


def message_of(body: object) -> str:
    """Return the text of an error in the forms that servers use; empty when there is none."""
    return next(_texts(body, _DEPTH), "")


def _texts(value: object, room: int) -> Iterator[str]:
    match value:
        case str() if value.strip():
            yield value
        case Mapping() if room:
            for name in _TEXTS:
                yield from _texts(value.get(name), room - 1)
        case list() if room:
            for item in value[:3]:
                yield from _texts(item, room - 1)
        case _:
            pass


def says_too_long(body: object) -> bool:
    """Tell whether an error says that the prompt does not fit, by its code or in words of known servers."""
    return _coded(body, _DEPTH) or _TOO_LONG.search(message_of(body)) is not None


def _coded(value: object, room: int) -> bool:
    if not isinstance(value, Mapping) or not room:
        return False
    if any(str(value.get(name, "")).lower() in _CODES for name in ("code", "type")):
        return True
    return _coded(value.get("error"), room - 1)


def shown(said: str, mask: Callable[[str], str], most: int = MOST) -> str:
    """Make words of a server safe to show; empty when there are none.

    Args:
        said: Whatever it sent, as text.
        mask: Masks secrets.
        most: Characters of it that are shown.
    """
    line = " ".join(mask(said[: 64 * most]).split())
    visible = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in line[: most + 1]
    )
    return visible if len(visible) <= most else f"{visible[: most - 1]}…"


def masking(secrets: Iterable[str], also: Callable[[str], str]) -> Callable[[str], str]:
    """Mask these secrets and every longer part of one, after what else is masked.

    Args:
        secrets: In the clear.
        also: Masks what else is secret in the gateway.
    """
    parts = {
        secret[start : start + _PART]
        for secret in secrets
        for start in range(max(1, len(secret) - _PART + 1))
        if len(secret) >= _SHORTEST
    }

    def mask(said: str) -> str:
        masked = also(said)
        hidden = bytearray(len(masked))
        for size in {len(part) for part in parts}:
            for start in range(len(masked) - size + 1):
                if masked[start : start + size] in parts:
                    hidden[start : start + size] = b"\1" * size
        found, was = [], 0
        for letter, now in zip(masked, hidden, strict=True):
            found.append(letter if not now else "" if was else "***")
            was = now
        return "".join(found)

    return mask
