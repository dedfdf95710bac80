"""`tyrum chat` on a terminal: it asks right there, and leaving never cancels."""

import asyncio
import json
import re

from tests.support.client import connected
from tests.support.gateway import TYRUM, RunningGateway, client_environment
from tests.support.questions import shown
from tests.support.terminal import on_terminal


def terminal_environment(gateway: RunningGateway) -> dict[str, str]:
    """Return a terminal's environment without colours."""
    return client_environment(gateway.state_dir) | {"TERM": "xterm", "NO_COLOR": "1"}


def test_an_approval_is_asked_with_digest_and_approved(gateway: RunningGateway) -> None:
    """The question shows what would run, and for whom; `y` lets exactly that run."""
    with on_terminal([str(TYRUM), "chat", "/run uname -s"], terminal_environment(gateway)) as terminal:
        question = terminal.wait_for("Approve exactly this? [y/n/a] ")
        assert re.search(r"^asked +for operator, until 20", question, re.MULTILINE)
        assert "\nprogram  /usr/bin/uname\ncommand  uname -s\n" in question
        terminal.type("maybe\n")
        terminal.wait_for("only y, n or a answers; until then nothing runs")
        terminal.wait_for("Approve exactly this? [y/n/a] ")
        terminal.type("y\n")
        terminal.wait_for("[process.run approved] by operator")
        assert terminal.end() == 0
        assert "> Linux" in terminal.screen


def test_a_denial_asks_for_the_reason_and_ends_with_5(gateway: RunningGateway) -> None:
    """`n` asks why, the agent's answer quotes it, and the exit code says that an approval was refused."""
    with on_terminal([str(TYRUM), "chat", "/run touch x"], terminal_environment(gateway)) as terminal:
        terminal.wait_for("Approve exactly this? [y/n/a] ")
        terminal.type("n\n")
        terminal.wait_for("Reason, told to the agent")
        terminal.type("too risky\n")
        assert terminal.end() == 5
        assert "denied by operator: too risky" in terminal.screen


def test_what_was_typed_before_the_question_does_not_answer_it(gateway: RunningGateway) -> None:
    """Type-ahead never approves: the question waits for an answer given after it was shown."""
    command, environment = [str(TYRUM), "chat", "/run uname -r"], terminal_environment(gateway)
    with on_terminal(command, environment, typed="y\ny\n") as terminal:
        terminal.wait_for("Approve exactly this? [y/n/a] ")
        terminal.type("n\n")
        terminal.wait_for("Reason, told to the agent")
        terminal.type("\n")
        assert terminal.end() == 5


def test_an_answer_from_elsewhere_ends_the_question(gateway: RunningGateway) -> None:
    """The open question, or that for a reason, yields when somebody else answers, and the turn goes on."""
    for typed, asked in (("", ""), ("n\n", "Reason, told to the agent (Enter for none): ")):
        with on_terminal([str(TYRUM), "chat", "/run uname -s"], terminal_environment(gateway)) as terminal:
            question = terminal.wait_for("Approve exactly this? [y/n/a] ")
            found = re.search(r"appr_\w{26}", question)
            assert found
            terminal.type(typed)
            terminal.wait_for(asked)
            assert gateway.tyrum("approvals", "approve", found[0]).returncode == 0
            terminal.wait_for(f"\nquestion withdrawn: {found[0]} is approved by operator (token)\n")
            assert terminal.end() == 0
            assert "> Linux" in terminal.screen
            assert "error:" not in terminal.screen


def test_end_of_input_at_the_question_keeps_watching(gateway: RunningGateway) -> None:
    """Ctrl-D answers nothing: it says that the turn is still watched and how to leave, and shows its end."""
    with on_terminal([str(TYRUM), "chat", "/run uname -s"], terminal_environment(gateway)) as terminal:
        terminal.wait_for("Approve exactly this? [y/n/a] ")
        terminal.type("\x04")
        told = terminal.wait_for("Ctrl-C detaches")
        assert "no answer: the call waits, and this terminal still watches the turn" in told
        found = re.search(
            r"tyrum approvals show (appr_\w{26})", terminal.wait_for("\nhint: ") + terminal.wait_for("\n")
        )
        assert found
        assert gateway.tyrum("approvals", "approve", found[1]).returncode == 0
        assert terminal.end() == 0
        assert "> Linux" in terminal.screen


def test_ctrl_c_detaches_and_the_turn_goes_on(gateway: RunningGateway) -> None:
    """Leaving exits with 130 and names the commands to follow and to cancel; the turn still waits."""
    with on_terminal([str(TYRUM), "chat", "/run uname -s"], terminal_environment(gateway)) as terminal:
        terminal.wait_for("Approve exactly this? [y/n/a] ")
        terminal.interrupt()
        assert terminal.end() == 130
        assert terminal.sane()
        assert "[y/n/a] \ndetached; the turn goes on\n" in terminal.screen
        hint = re.search(r"tyrum conversations cancel (turn_\w+)", terminal.screen)
        assert hint
        assert re.search(r"tyrum conversations watch conv_\w+ --after \d+", terminal.screen)
    assert gateway.tyrum("conversations", "cancel", hint[1]).stdout.endswith(" cancelled\n")


def test_ctrl_c_at_the_reason_denies_nothing(gateway: RunningGateway) -> None:
    """Leaving while the reason is asked for leaves the call waiting, with one press."""
    with on_terminal([str(TYRUM), "chat", "/run uname -s"], terminal_environment(gateway)) as terminal:
        terminal.wait_for("Approve exactly this? [y/n/a] ")
        terminal.type("n\n")
        terminal.wait_for("Reason, told to the agent")
        terminal.interrupt()
        assert terminal.end() == 130
        found = re.search(r"appr_\w{26}", terminal.screen)
        assert found
        assert asyncio.run(denied(gateway, found[0])), "it waited"


async def denied(gateway: RunningGateway, approval_id: str) -> bool:
    """Deny what waits, so that nothing is left of it; tell whether it did."""
    async with connected(gateway) as client:
        waited = not (await shown(client, approval_id)).outcome
        await client.resolve(approval_id, approve=False)
    return waited


def test_a_prompt_holds_a_conversation(gateway: RunningGateway) -> None:
    """Without TEXT messages are read at a prompt, all in one conversation; Ctrl-C clears, `/exit` ends."""
    with on_terminal([str(TYRUM), "chat"], terminal_environment(gateway)) as terminal:
        terminal.wait_for("> ")
        terminal.type("/help\n")
        terminal.wait_for("Ctrl-C  clear the line; a second one leaves")
        terminal.wait_for("> ")
        terminal.type("half a mess")
        terminal.wait_for("half a mess")
        terminal.interrupt()
        terminal.wait_for("the line is cleared; Ctrl-C again leaves")
        terminal.wait_for("> ")
        terminal.type("hello\n")
        terminal.wait_for("offline model")
        terminal.wait_for("> ")
        terminal.type("/run printf again\n")
        terminal.wait_for("> again")
        terminal.wait_for("> ")
        terminal.type("/exit\n")
        assert terminal.end() == 0
        conversation = re.search(r"--conversation (conv_\w+)", terminal.screen)
        assert conversation
    shown = gateway.tyrum("conversations", "show", conversation[1]).stdout
    assert "|  hello" in shown
    assert "half" not in shown
    assert "|  /run printf again" in shown


def test_approve_on_a_terminal_shows_and_confirms(gateway: RunningGateway) -> None:
    """`approvals approve` without a digest asks first; anything but yes, Ctrl-C too, approves nothing."""
    with on_terminal([str(TYRUM), "chat", "/run uname -s"], terminal_environment(gateway)) as chat:
        question = chat.wait_for("Approve exactly this? [y/n/a] ")
        found = re.search(r"appr_\w{26}", question)
        assert found
        command = [str(TYRUM), "approvals", "approve", found[0]]
        with on_terminal(command, terminal_environment(gateway)) as terminal:
            terminal.wait_for("Approve exactly this? [y/N]: ")
            terminal.interrupt()
            assert terminal.end() == 130, "one press is enough"
            assert terminal.sane()
            assert terminal.screen.endswith("[y/N]: \n")
        # It is still asked about what it left.
        with on_terminal(command, terminal_environment(gateway)) as terminal:
            assert "/usr/bin/uname" in terminal.wait_for("Approve exactly this?")
            terminal.type("\n")
            assert terminal.end() == 1
        with on_terminal(command, terminal_environment(gateway)) as terminal:
            terminal.wait_for("Approve exactly this?")
            terminal.type("y\n")
            assert terminal.end() == 0
        assert chat.end() == 0


def test_a_permits_calls_like_it_and_says_so_when_it_cannot(gateway: RunningGateway) -> None:
    """`a` lets the call run and the next one unasked; for an interpreter it is not offered."""
    environment = terminal_environment(gateway)
    with on_terminal([str(TYRUM), "chat", "/run uname -m"], environment) as terminal:
        terminal.wait_for("a: also calls like it, for 30 days")
        terminal.wait_for("Approve exactly this? [y/n/a] ")
        terminal.type("a\n")
        terminal.wait_for("and calls like it from now on")
        assert terminal.end() == 0
    again = gateway.tyrum("chat", "/run uname -m")
    assert again.returncode == 0, again.stderr
    assert "waiting for approval" not in again.stderr
    (override,) = json.loads(gateway.tyrum("policy", "overrides", "list", "-o", "json").stdout)
    assert override["summary"] == "/usr/bin/uname -m (in .)"
    assert gateway.tyrum("policy", "overrides", "revoke", override["override_id"]).returncode == 0
    with on_terminal([str(TYRUM), "chat", "/run bash -c exit"], environment) as terminal:
        assert "\ny: once; n: not at all\n" in terminal.wait_for("Approve exactly this? [y/n] ")
        terminal.type("a\n")
        terminal.wait_for("`bash` runs what its arguments, input or files name")
        terminal.wait_for("Approve exactly this? [y/n] ")
        found = re.search(r"appr_\w{26}", terminal.screen)
        assert found
        command = [str(TYRUM), "approvals", "approve", found[0], "--always"]
        with on_terminal(command, environment) as elsewhere:
            elsewhere.wait_for("error: this call cannot be permitted for good: `bash` runs what")
            assert elsewhere.end() == 1, "nobody is asked for what would be refused"
        terminal.type("y\n")
        assert terminal.end() == 0
    assert "a: also calls like it" not in terminal.screen


def test_coming_back_shows_what_was_last_and_asks_what_waits(gateway: RunningGateway) -> None:
    """`chat -c` on a conversation that waits for an approval shows its end and asks; so does a message."""
    asked = [str(TYRUM), "chat", "/run uname -p"]
    with on_terminal(asked, terminal_environment(gateway)) as terminal:
        terminal.wait_for("Approve exactly this? [y/n/a] ")
        terminal.interrupt()
        terminal.end()
        found = re.search(r"watch (conv_\w+)", terminal.screen)
        assert found
    command = [str(TYRUM), "chat", "-c", found[1]]
    with on_terminal(command, terminal_environment(gateway)) as terminal:
        terminal.wait_for("> /run uname -p\n")
        terminal.wait_for("Approve exactly this? [y/n/a] ")
        with on_terminal([*command, "hello"], terminal_environment(gateway)) as queued:
            queued.wait_for("queued behind turn_")
            queued.wait_for("Approve exactly this? [y/n/a] ")
            queued.type("n\n")
            queued.wait_for("Reason, told to the agent")
            queued.type("\n")
            queued.wait_for("[process.run denied] by operator")
            queued.wait_for("This is the offline model")
            assert queued.end() == 0, "what was denied was another turn's"
        terminal.wait_for("question withdrawn: ")
        terminal.wait_for("\n> ")
        terminal.type("\x04")
        assert terminal.end() == 0
