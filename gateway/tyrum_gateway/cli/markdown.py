"""Markdown of models on a terminal, block by block as it is generated.

Invariants: nothing that was written is written again; a link shows its target beside its text and is no
hyperlink; no part of the text is hidden (HTML, references and images are shown as they were written); no
control character comes out of it, whatever it was encoded as. No colours: those are ours.
"""

import os
import re
import sys

from tyrum_gateway.cli.terminal import visible

_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
_ITEM = re.compile(r"\s*([-*+]|\d{1,9}[.)])\s")
_LONGEST = 64 * 1024
"""Characters of a block that is shown unfinished at the end of a line."""

_STYLES = {
    "markdown.code": "bold",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold underline",
    "markdown.h3": "bold",
    "markdown.block_quote": "italic",
    "markdown.item.bullet": "bold",
    "markdown.item.number": "bold",
    "markdown.hr": "none",
    "markdown.link": "underline",
    "markdown.link_url": "none",
    "markdown.table.border": "none",
    "markdown.table.header": "bold",
}


def renders() -> bool:
    """Whether stdout is a terminal that shows styles, and they are wanted."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"


class Blocks:
    """Cuts text that comes in pieces into blocks that will not change any more."""

    def __init__(self) -> None:
        self._line = ""
        self._block: list[str] = []
        self._length = 0
        self._fence = ""
        self._list = False
        self._blank = False

    def feed(self, text: str) -> list[str]:
        """Take the next piece; return the blocks that it finished."""
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = self._line + lines[0]
            self._line = ""
        self._line += rest
        return [block for line in lines for block in self._next(line)]

    def rest(self) -> str:
        """Return what is not finished, and begin anew."""
        block = "\n".join([*self._block, self._line])
        self._line, self._fence, self._blank = "", "", False
        self._cut()
        return block

    def _next(self, line: str) -> list[str]:
        finished = []
        if self._fence:
            if line.strip() and not line.strip().strip(self._fence[0]) and self._fence in line:
                self._fence = ""
            self._add(line)
            if not self._fence and not self._list:
                finished.append(self._cut())
        elif not line.strip():
            if self._block and not self._list:
                finished.append(self._cut())
            self._blank = True
        else:
            if self._list and self._blank and not (_ITEM.match(line) or line.startswith("  ")):
                finished.append(self._cut())
            if not self._block:
                self._list = bool(_ITEM.match(line))
            elif self._blank:
                self._add("")
            self._blank = False
            if found := _FENCE.match(line):
                self._fence = found[1]
            self._add(line)
        if self._length > _LONGEST:
            finished.append(self._cut())
        return finished

    def _add(self, line: str) -> None:
        self._block.append(line)
        self._length += len(line) + 1

    def _cut(self) -> str:
        block, self._block, self._length, self._list = "\n".join(self._block), [], 0, False
        return block


def render(block: str) -> None:
    """Write one block to the terminal, wrapped at words."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - heavy, and only for terminals
    from markdown_it.token import Token  # noqa: PLC0415
    from rich.console import Console, ConsoleOptions, RenderResult  # noqa: PLC0415
    from rich.markdown import CodeBlock, Heading, Markdown  # noqa: PLC0415
    from rich.padding import Padding  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415
    from rich.theme import Theme  # noqa: PLC0415

    class Code(CodeBlock):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            yield Padding(Text(str(self.text).rstrip("\n"), overflow="fold"), (0, 0, 0, 2))

    class Title(Heading):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            self.text.justify = "left"
            yield self.text

    class Safe(Markdown):
        elements = Markdown.elements | {"fence": Code, "code_block": Code, "heading_open": Title}

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.disable(["entity", "reference", "image", "autolink"])

    def clean(tokens: list[Token]) -> None:
        for token in tokens:
            token.content = visible(token.content)
            if token.type == "softbreak":
                token.type = "hardbreak"
            if "href" in token.attrs:
                token.attrs["href"] = visible(str(token.attrs["href"]))
            clean(token.children or [])

    shown = Safe("", hyperlinks=False)
    shown.parsed = parser.parse(visible(block))
    clean(shown.parsed)
    console = Console(highlight=False, theme=Theme(_STYLES), emoji=False, markup=False)
    with console.capture() as captured:
        console.print(shown)
    # Rich fills lines to the width of the terminal; what is copied from them has no blanks behind it.
    sys.stdout.write("\n".join(line.rstrip() for line in captured.get().strip("\n").split("\n")) + "\n")
    sys.stdout.flush()
