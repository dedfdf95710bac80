"""Shell text that policy allows does in real bash what was allowed; and whoever checks that can fail."""

import shlex
from collections.abc import Iterator

import pytest

from tests.policy_oracle.fuzz import Outcome, check, fuzz
from tests.policy_oracle.generator import Generator, every_fragment
from tests.policy_oracle.judge import ProductJudge
from tests.policy_oracle.oracle import Allowed, Commands, NotAllowed, check_run, check_words
from tests.policy_oracle.rules import ALLOWED_NAMES
from tests.policy_oracle.sandbox import Sandbox

SEED = 20
TEXTS = 560


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Keep one worker for all tests; it puts its workspace back after each text."""
    with Sandbox(tmp_path_factory.mktemp("oracle")) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def judge(sandbox: Sandbox) -> ProductJudge:
    """Ask the product."""
    return ProductJudge(sandbox)


def test_what_policy_allows_is_what_bash_runs(sandbox: Sandbox, judge: ProductJudge) -> None:
    """No generated text that policy allows makes bash start, change or read anything that was not allowed."""
    outcome = fuzz(Generator(SEED, sandbox.programs), TEXTS, judge, sandbox)
    assert outcome.escapes == []
    assert outcome.crashes == []
    assert outcome.allowed >= 100
    assert outcome.ran == outcome.allowed
    assert outcome.programs > outcome.ran


def test_no_piece_of_bash_rides_along(sandbox: Sandbox, judge: ProductJudge) -> None:
    """Each known trick, before, after and inside a permitted command, is refused or does nothing."""
    outcome = Outcome()
    for text in every_fragment():
        outcome.add(check(text, judge, sandbox))
    assert outcome.escapes == []
    assert outcome.crashes == []
    assert 0 < outcome.allowed < outcome.texts / 4


@pytest.mark.parametrize(
    ("text", "pipelines"),
    [
        ("show", [[["show"]]]),
        ("show a 'b c' \"d e\" ''", [[["show", "a", "b c", "d e", ""]]]),
        ("status && list -l dir", [[["status"]], [["list", "-l", "dir"]]]),
        ("status | check a | show", [[["status"], ["check", "a"], ["show"]]]),
        (
            "check; show\nfetch --dry-run '$x' '*'",
            [[["check"]], [["show"]], [["fetch", "--dry-run", "$x", "*"]]],
        ),
        (
            "check || pick --id=a.b/c && show --k=v",
            [[["check"]], [["pick", "--id=a.b/c"]], [["show", "--k=v"]]],
        ),
    ],
)
def test_plain_allowed_commands_are_allowed(
    sandbox: Sandbox, judge: ProductJudge, text: str, pipelines: list[list[list[str]]]
) -> None:
    """Everyday chains and pipes of permitted commands run without asking, as they read."""
    verdict = judge(text)
    assert isinstance(verdict, Allowed)
    assert [[list(words) for words in pipeline] for pipeline in verdict.commands.pipelines] == pipelines
    assert check_run(sandbox, text, verdict.commands)[1] == []


@pytest.mark.parametrize(
    "text",
    [
        "wipe",
        "show && wipe",
        "show | wipe",
        "wipe; show",
        "show --force",
        "show a; show '--force'",
        "list",
        "status a",
        "show | status",
        "show | list -l a",
        "./show",
        "dir/show",
        "env show",
        "echo a | show",
        "show && test a",
    ],
)
def test_what_no_rule_permits_asks(judge: ProductJudge, text: str) -> None:
    """A chain is as forbidden as its most forbidden part, whatever the other parts are."""
    assert isinstance(judge(text), NotAllowed)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("show; wipe", "programs"),
        ("wipe && show", "not permitted"),
        ("./show", "not permitted"),
        ("show *", "programs"),
        ("show $'a'", "programs"),
        ("show a{b,c}", "programs"),
        ("show ~", "programs"),
        ("show $(wipe)", "programs"),
        ("show >made", "files"),
        ("show 2>/dev/null", "standard error"),
        ("show 2>&1", "standard output"),
        ("show <a.txt", "standard input"),
        ("show <<<a", "standard input"),
        ("show 5<a.txt", "surroundings"),
        ("X=1 show", "surroundings"),
        ("LD_PRELOAD=./x show", "surroundings"),
        ("cd dir && show", "surroundings"),
        ("! show", "exit code"),
        ("show; exit 7", "exit code"),
        ("until [ a = b ]; do :; done & show", "processes"),
        ("show '", "standard error"),
        ("show\0", "unrunnable"),
        ("show \ud800", "unrunnable"),
    ],
)
def test_each_way_out_is_seen(sandbox: Sandbox, text: str, kind: str) -> None:
    """Text that is allowed by mistake, as if it were `show`, is reported for what it does besides."""
    _, escapes = check_run(sandbox, text, Commands(((("show",),),), ()))
    assert kind in {escape.kind for escape in escapes}


@pytest.mark.parametrize("text", ["a b\\ c", "a *", "a 'b''", "e\\cho b", "a; b", "a {b,c}", "a #b"])
def test_misread_words_are_seen(sandbox: Sandbox, text: str) -> None:
    """Words that are split by blanks alone are found to be not what bash reads, whatever the program."""
    assert check_words(sandbox, text, Commands(((tuple(text.split()),),), ()))


def test_a_parser_that_trusts_the_first_word_is_caught(sandbox: Sandbox) -> None:
    """The same texts, under a verdict that allows whatever begins with a permitted name, do escape."""

    def trusting(text: str) -> Allowed | NotAllowed:
        try:
            words = tuple(shlex.split(text))
        except ValueError:
            return NotAllowed(None)
        if not words or words[0] not in ALLOWED_NAMES:
            return NotAllowed(None)
        return Allowed(Commands(((words,),), ()))

    outcome = fuzz(Generator(SEED, sandbox.programs), 120, trusting, sandbox)
    kinds = {escape.kind for escape in outcome.escapes}
    assert len({escape.text for escape in outcome.escapes}) >= 20
    assert kinds >= {"programs", "standard error", "exit code"}
