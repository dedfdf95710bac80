"""What every mapping with fixed keys has in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every mapping with fixed keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)
