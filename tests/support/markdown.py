"""Reads pages as their readers see them: code blocks, code in text, links, headings."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.repository import ROOT, tracked

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block."""

    language: str
    code: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the repository; `path` is relative to its root."""

    path: Path
    text: str

    @property
    def blocks(self) -> Sequence[Block]:
        """The fenced blocks in their order."""
        return [Block(found["language"], found["code"]) for found in _FENCE.finditer(self.text)]

    @property
    def code(self) -> Iterator[str]:
        """What stands between backticks in text, broken lines joined; comments of the page included."""
        for found in _CODE.finditer(_FENCE.sub("", self.text)):
            yield " ".join(found[2].split())

    @property
    def links(self) -> Iterator[str]:
        """The targets of links."""
        text = _CODE.sub("`code`", _COMMENT.sub("", _FENCE.sub("", self.text)))
        for found in _LINK.finditer(text):
            yield found[1]

    @property
    def anchors(self) -> frozenset[str]:
        """What a link to this page may name behind `#`, as GitHub makes it from the headings."""
        seen: dict[str, int] = {}
        anchors = set()
        for heading in _HEADING.findall(_FENCE.sub("", self.text)):
            slug = re.sub(r"[^\w\- ]", "", _plain(heading).lower()).replace(" ", "-")
            anchors.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
            seen[slug] = seen.get(slug, 0) + 1
        return frozenset(anchors)


def _plain(heading: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")


@cache
def pages() -> Sequence[Page]:
    """Read every page of the repository."""
    return [read(path) for path in tracked() if path.suffix == ".md"]


def read(path: Path) -> Page:
    """Read one page by its path from the root."""
    return Page(path, (ROOT / path).read_text(encoding="utf-8"))
