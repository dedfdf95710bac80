"""A request as the scripted model server saw it, without its key."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """One model call."""

    scenario: str
    protocol: str
    """`openai` or `anthropic`."""
    headers: Mapping[str, str]
    """Names in lower case; the authorization is left out."""
    body: Mapping[str, Any]

    @property
    def text(self) -> str:
        """Every text of the body, values and keys, one a line."""
        return "\n".join(self.texts)

    @property
    def texts(self) -> list[str]:
        """Every text of the body, values and keys."""
        return list(_texts(self.body))

    @property
    def system(self) -> str:
        """The system text."""
        if self.protocol == "anthropic":
            return str(self.body.get("system", ""))
        return "\n".join(str(item["content"]) for item in self.messages if item["role"] == "system")

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages as they came."""
        found: list[Mapping[str, Any]] = self.body["messages"]
        return found

    @property
    def roles(self) -> list[str]:
        """Who says what, in order."""
        return [str(message["role"]) for message in self.messages]

    @property
    def results(self) -> list[str]:
        """What tools returned, in order."""
        if self.protocol == "openai":
            return [str(message["content"]) for message in self.messages if message["role"] == "tool"]
        return [
            str(block.get("content", ""))
            for message in self.messages
            for block in message["content"]
            if block["type"] == "tool_result"
        ]

    @property
    def tools(self) -> frozenset[str]:
        """The names of the tools that are offered."""
        return frozenset(name for name, _, _ in self.declared)

    @property
    def declared(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Name, description and schema of the tools that are offered."""
        listed = self.body.get("tools", [])
        if self.protocol == "openai":
            listed = [{**tool["function"], "input_schema": tool["function"]["parameters"]} for tool in listed]
        return [(str(tool["name"]), str(tool["description"]), tool["input_schema"]) for tool in listed]


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
            if value.startswith("{"):
                yield from _within(value)
        case Mapping():
            for key, item in value.items():
                yield str(key)
                yield from _texts(item)
        case list():
            for item in value:
                yield from _texts(item)
        case _:
            yield str(value)


def _within(text: str) -> Iterator[str]:
    """Arguments are JSON in a text in one protocol, and JSON itself in the other."""
    try:
        value = json.loads(text)
    except ValueError:
        return
    yield from _texts(value)
