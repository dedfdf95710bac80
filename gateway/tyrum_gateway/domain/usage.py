"""What a model says it used, in its own tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request; None is what the model did not tell."""

    input_tokens: int | None
    """All of the prompt, read from a cache or not, >= 0."""
    output_tokens: int | None
    """All that was generated, shown or not, >= 0."""

    @property
    def complete(self) -> bool:
        """Whether the model told both."""
        return self.input_tokens is not None and self.output_tokens is not None


UNKNOWN = Usage(None, None)
NOTHING = Usage(0, 0)
"""Known to have used nothing: the request was refused before anything was generated."""
