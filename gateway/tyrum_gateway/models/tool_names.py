"""Tool ids and the names that model servers allow: letters, digits, `_` and `-`, at most 64, no digit first.

Invariant: within one request no two tools share a name, so that a name that comes back stands for one tool;
one that was not given out stands for no tool of the request.
"""

import re
from collections.abc import Iterable

MAX_NAME = 64
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """The names of one request."""

    def __init__(self, tools: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        self._tools: dict[str, str] = {}
        for tool in sorted(set(tools)):
            name, number = _allowed(tool), 2
            while name in self._tools:
                suffix = f"_{number}"
                name, number = _allowed(tool)[: MAX_NAME - len(suffix)] + suffix, number + 1
            self._names[tool] = name
            self._tools[name] = tool

    def name_of(self, tool: str) -> str:
        """Name a tool; one that is not offered, now or ever, is named by what is allowed of its id."""
        return self._names.get(tool) or _allowed(tool)

    def knows(self, name: str) -> bool:
        """Tell whether a name was given out."""
        return name in self._tools

    def tool_of(self, name: str) -> str:
        """Find the tool of a name; a name that was not given out is returned as it is, and names no tool."""
        return self._tools.get(name, name)


def _allowed(tool: str) -> str:
    name = _NOT_ALLOWED.sub("_", tool)
    return (name if re.match("[A-Za-z_]", name) else f"_{name}")[:MAX_NAME]
