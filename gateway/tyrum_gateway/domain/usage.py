"""What a model says it used, in its own tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request; None is what the model did not tell."""

    input_tokens: int | None
    """All of the prompt, read from a cache or not, >= 0."""
    output_tokens: int | None
    """All that was generated, shown or not, >= 0."""
    lower_bound: bool = False
    """Whether something was used besides that nobody told."""

    @property
    def complete(self) -> bool:
        """Whether the model told all."""
        return self.input_tokens is not None and self.output_tokens is not None and not self.lower_bound

    @property
    def tokens(self) -> int:
        """What was told, of both kinds together."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    def __add__(self, other: "Usage") -> "Usage":
        """Add up what was told; what was not makes the sum a lower bound."""
        return Usage(
            (self.input_tokens or 0) + (other.input_tokens or 0),
            (self.output_tokens or 0) + (other.output_tokens or 0),
            not (self.complete and other.complete),
        )


UNKNOWN = Usage(None, None)
NOTHING = Usage(0, 0)
"""Known to have used nothing: the request was refused before anything was generated."""
