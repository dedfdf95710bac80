"""The guide to approvals can be typed: every command in it runs as it says."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.support.gateway import TYRUM, RunningGateway, client_environment
from tests.support.markdown import Page
from tests.support.repository import ROOT
from tests.support.terminal import on_terminal

GUIDE = "docs/guides/approvals.md"


def commands() -> Iterator[list[str]]:
    """What the guide lets its reader type, without remarks."""
    page = Page(Path(GUIDE), (ROOT / GUIDE).read_text(encoding="utf-8"))
    for block in page.blocks:
        if block.language == "console":
            for line in block.code.splitlines():
                assert line.startswith("$ tyrum ")
                yield shlex.split(line.removeprefix("$ tyrum "), comments=True)


def waiting(gateway: RunningGateway, number: int) -> str:
    """Have a command wait for an answer; return the approval."""
    environment = client_environment(gateway.state_dir) | {"TERM": "xterm", "NO_COLOR": "1"}
    with on_terminal([str(TYRUM), "chat", f"/run touch guide-{number}"], environment) as chat:
        found = re.search(r"appr_\w{26}", chat.wait_for("Approve exactly this?"))
        assert found
        chat.interrupt()
        chat.end()
    return found[0]


def test_every_command_of_the_guide_works(gateway: RunningGateway) -> None:
    """Watching, showing, answering once and always, denying, listing, revoking: each as it stands there."""
    typed = list(commands())
    assert [words[:2] for words in typed] == [
        ["approvals", "watch"],
        ["approvals", "show"],
        ["approvals", "approve"],
        ["approvals", "deny"],
        ["approvals", "list"],
        ["approvals", "approve"],
        ["policy", "overrides"],
        ["policy", "overrides"],
    ]
    environment = client_environment(gateway.state_dir) | {"TERM": "xterm", "NO_COLOR": "1"}
    approval, override, answered = waiting(gateway, 0), "", 0
    for words in typed:
        if words == ["approvals", "watch"]:
            with on_terminal([str(TYRUM), *words], environment) as terminal:
                terminal.wait_for("watching; Ctrl-C ends this")
            continue
        if words[1] in {"approve", "deny"} and answered:
            approval = waiting(gateway, answered)
        run = gateway.tyrum(*(word.replace("appr_…", approval).replace("over_…", override) for word in words))
        assert run.returncode == 0, f"{words}\n{run.stderr}"
        if words[1] in {"approve", "deny"}:
            answered += 1
        if found := re.search(r"over_\w{26}", run.stdout + run.stderr):
            override = found[0]
    assert override
    assert f"{override} revoked " in run.stdout
