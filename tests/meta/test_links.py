"""What the pages point at is there: files, headings, paths, commands, make targets, modules."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from tests.support import command_line, markdown
from tests.support.markdown import Page
from tests.support.repository import ROOT, tracked

BASES = ("", "proto", "gateway/tyrum_gateway", "examples/client_node")
"""Where a path in a text may begin besides the page's own directory and the package below it."""
_SUFFIXES = r"py|pyi|md|proto|ya?ml|json|toml|mjs|service|conf|binpb"
_PATH = re.compile(rf"(?P<path>\.?[\w*][\w.*-]*(?:/[\w.*-]+)*(?:/|\.(?:{_SUFFIXES})))(?:(?:::|: )\w+)?")
_WITHOUT_A_FILE = {
    "gateway.json": "in the state directory",
    "operator.token": "in the state directory",
    "sandbox.yaml": "the reader's own",
    "tyrum/process/v1/process.proto": "planned",
}


def bases(page: Page) -> list[Path]:
    """Where paths in the text of a page may begin."""
    own = ROOT / page.path.parent
    return [own, *own.glob("tyrum_*/"), *(ROOT / base for base in BASES)]


def missing_path(page: Page, code: str) -> bool:
    """Whether code in a text is a path of the repository that leads nowhere."""
    named = _PATH.fullmatch(code)
    if named is None or code in _WITHOUT_A_FILE:
        return False
    path = named["path"].rstrip("/")
    anywhere = "/" not in named["path"] and any(path == file.name for file in tracked())
    return not anywhere and not any(any(base.glob(path)) for base in bases(page))


def broken_link(page: Page, target: str) -> str | None:
    """Say why a link leads nowhere; links to the web are not followed."""
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    path = (ROOT / page.path.parent / name).resolve() if name else ROOT / page.path
    if not path.is_relative_to(ROOT) or not path.exists():
        return "no such file"
    if anchor and anchor not in markdown.read(path.relative_to(ROOT)).anchors:
        return "no such heading"
    return None


def commands(page: Page) -> list[str]:
    """List what a page shows to be typed, comments and prompts left out."""
    lines = [
        line
        for block in page.blocks
        if block.language in {"console", "sh"}
        for line in block.code.splitlines()
    ]
    return [line.removeprefix("$ ").strip() for line in [*lines, *page.code]]


def wrong_command(command: str) -> list[str]:
    """Say what a command names that does not exist; only our own commands, make and modules are looked at.

    NAMES in capitals stand for something else.
    """
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return []
    match [word for word in words if not word.isupper()]:
        case [program, *arguments] if Path(program).name == "tyrum" and arguments:
            stop = next((at for at, word in enumerate(arguments) if word in {"|", ">", "&&", ";"}), None)
            return command_line.problems_of([word.strip("[]") for word in arguments[:stop]])
        case ["make", target] if not re.search(
            rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE
        ):
            return [f"no target `{target}`"]
        case [program, "-m", module, *_] if Path(program).name.startswith("python"):
            return [] if importlib.util.find_spec(module) else [f"no module `{module}`"]
        case _:
            return []


def test_links_lead_somewhere() -> None:
    """Every relative link of every page leads to a file of the repository, and to the heading it names."""
    checked = [(page, target) for page in markdown.pages() for target in page.links]
    assert len(checked) > 50
    problems = [
        f"{page.path}: {target}: {why}" for page, target in checked if (why := broken_link(page, target))
    ]
    assert not problems, "\n".join(problems)


def test_paths_in_text_exist() -> None:
    """Every path of the repository that a page names is there."""
    problems = [
        f"{page.path}: {code}" for page in markdown.pages() for code in page.code if missing_path(page, code)
    ]
    assert not problems, "\n".join(problems)


def test_commands_in_text_exist() -> None:
    """Every command, option, make target and module that a page tells the reader to type exists."""
    checked = [(page, command) for page in markdown.pages() for command in commands(page)]
    assert sum("tyrum " in command for _, command in checked) > 20
    problems = [
        f"{page.path}: {command}: {why}" for page, command in checked for why in wrong_command(command)
    ]
    assert not problems, "\n".join(problems)


def test_every_page_is_linked() -> None:
    """Whoever starts at the README reaches every page."""
    reached, pending = {Path("README.md")}, [Path("README.md")]
    while pending:
        page = markdown.read(pending.pop())
        for target in page.links:
            path = (ROOT / page.path.parent / target.partition("#")[0]).resolve()
            if path.suffix == ".md" and path.is_file() and path.relative_to(ROOT) not in reached:
                reached.add(path.relative_to(ROOT))
                pending.append(path.relative_to(ROOT))
    unreached = [str(page.path) for page in markdown.pages() if page.path not in reached]
    assert not unreached, "\n".join(unreached)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[x](gone.md)", "no such file"),
        ("[x](../../outside.md)", "no such file"),
        ("[x](architecture.md#gone)", "no such heading"),
        ("[`code` x](architecture.md#a-turn)", None),
        ("[x](../README.md)", None),
        ("[x](https://example.org/gone)", None),
    ],
)
def test_a_broken_link_is_told_from_a_good_one(text: str, problem: str | None) -> None:
    """A link that leads nowhere is named with its reason."""
    page = Page(Path("docs/x.md"), text)
    assert [broken_link(page, target) for target in page.links] == [problem]


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ("domain/turn.py: work", False),
        ("tests/meta/test_links.py::test_links_lead_somewhere", False),
        ("docs/guides/*.md", False),
        ("providers/host/", False),
        ("domain/gone.py", True),
        ("docs/*/gone.md", True),
        ("gone/", True),
        ("tyrum/gone/v1/gone.proto", True),
        ("/var/lib/tyrum/x.json", False),
        ("text/plain", False),
    ],
)
def test_a_missing_path_is_told_from_a_good_one(code: str, missing: bool) -> None:
    """A path that leads nowhere is found, whatever it is relative to; other code is left alone."""
    assert missing_path(Page(Path("docs/x.md"), ""), code) is missing


@pytest.mark.parametrize(
    ("command", "problems"),
    [
        (".venv/bin/tyrum serve --config x.yaml  # words", []),
        ("tyrum serve --gone", ["no option `--gone`"]),
        ("tyrum config gone", ["no command `gone`"]),
        ("tyrum gone", ["no command `gone`"]),
        ("tyrum --version", []),
        ("make gone", ["no target `gone`"]),
        ("python -m tyrum_gateway.gone", ["no module `tyrum_gateway.gone`"]),
        ("uname -a", []),
    ],
)
def test_a_wrong_command_is_told_from_a_good_one(command: str, problems: list[str]) -> None:
    """A command that does not exist is named with what is wrong."""
    assert wrong_command(command) == problems
