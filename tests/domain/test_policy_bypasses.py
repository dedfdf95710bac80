"""Known ways around policies: each asks or is denied, and the plain commands beside them are still allowed.

Calls are resolved as the tool resolves them, against real files, and nothing runs.
"""

import json
import os
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tyrum_gateway.domain.policy import (
    AnyArgument,
    Bundle,
    Decision,
    Literal,
    Prefix,
    Provenance,
    Rule,
    Target,
    Verdict,
    evaluate,
)
from tyrum_gateway.domain.process import RunLimits
from tyrum_gateway.tools.programs import SearchPath
from tyrum_gateway.tools.run_arguments import parse_arguments
from tyrum_gateway.tools.run_call import RunSettings, resolve
from tyrum_gateway.tools.strict_json import ArgumentProblem
from tyrum_gateway.tools.workspace import prepare_workspace

ALLOW, ASK, DENY = Decision.ALLOW, Decision.REQUIRE_APPROVAL, Decision.DENY
PROGRAMS = (
    "show", "count", "fixed", "safe", "erase",
    "bash", "sh", "dash", "python3.11", "perl", "awk", "sed", "env", "sudo", "xargs", "find", "timeout",
    "nohup", "nice",
    "git", "ssh", "tar", "vim", "make", "busybox", "time", "test", "printf", "echo", "true", "eval", "cat",
    "tee", "kill",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Programs, a workspace, and rules over them."""

    settings: RunSettings
    bundle: Bundle
    programs: Path
    workspace: Path

    def target(self, **arguments: Any) -> Target:
        """Resolve a call."""
        return resolve(parse_arguments(json.dumps(arguments)), self.settings).target()

    def text(self, text: str) -> Target:
        """Resolve a call of shell text."""
        return self.target(shell=text)

    def verdict(self, **arguments: Any) -> Verdict:
        """Decide on a call."""
        return evaluate(self.bundle, self.target(**arguments))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """`show` is allowed with anything, `count` with input, `fixed` and `safe` narrowly, `erase` never."""
    root = tmp_path_factory.mktemp("place").resolve()
    programs, workspace = root / "bin", root / "workspace"
    for directory in (programs, workspace / "sub", root / "elsewhere"):
        directory.mkdir(parents=True)
    for path in (*(programs / name for name in PROGRAMS), workspace / "show", root / "elsewhere/show"):
        path.write_text("#!/bin/true\n", encoding="utf-8")
        path.chmod(0o755)
    (programs / "link").symlink_to("bash")
    (programs / "alias").symlink_to("show")
    (programs / "inside").symlink_to(workspace / "show")
    (workspace / "show-link").symlink_to(programs / "bash")
    (workspace / "named").mkdir()
    (workspace / "named/show").symlink_to(programs / "bash")
    (workspace / "linked").mkdir()
    (workspace / "linked/show").symlink_to(programs / "show")
    rules = (
        rule("show", programs / "show"),
        rule("count", programs / "count", stdin=True),
        rule("fixed", programs / "fixed", argv=(Literal("status"), Prefix("--x="))),
        rule("safe", programs / "safe", argv=(AnyArgument(),), env=frozenset({"LC_ALL"}), cwd="sub"),
        Rule("no-erase", DENY, "ops", reason="never", program=str(programs / "erase")),
    )
    settings = RunSettings(
        prepare_workspace(workspace),
        SearchPath((str(programs),)),
        RunLimits(timedelta(minutes=1), 1 << 20, timedelta(seconds=1)),
        secrets=frozenset({"TOKEN"}),
    )
    return Place(settings, Bundle("test", rules), programs, workspace)


def rule(rule_id: str, program: Path, **conditions: Any) -> Rule:
    """Make an allow rule that does not mind where these tests keep their programs."""
    return Rule(
        rule_id, ALLOW, "ops", tool="process.run", program=str(program), replaceable=True, **conditions
    )


PLAIN: list[dict[str, Any]] = [
    {"argv": ["show"]},
    {"argv": ["show", "$(erase x)", "; erase", "> x"]},
    {"argv": ["fixed", "status", "--x=1"]},
    {"argv": ["safe", "anything"], "cwd": "sub", "env": {"LC_ALL": "C"}},
    {"argv": ["count"], "stdin": "text"},
    {"shell": "show"},
    {"shell": "show -a 'b c' \"d\" e=f\n"},
    {"shell": "fixed status --x=1"},
    {"shell": "safe x", "cwd": "sub", "env": {"LC_ALL": "C"}},
    {"shell": "count", "stdin": "text"},
    {"shell": "show a && show b"},
    {"shell": "show a || fixed status --x=; show\nshow"},
    {"shell": "show a | count"},
    {"shell": "show 'x' | count -l | count && show"},
    {"shell": "safe x && show", "cwd": "sub"},
    {"shell": "count && count", "stdin": "text"},
    {"shell": "show '; erase' && show 'erase x | bash'"},
]


@pytest.mark.parametrize("call", PLAIN, ids=repr)
def test_plain_commands_are_still_allowed(place: Place, call: dict[str, Any]) -> None:
    """What the operator allowed runs unasked, alone and in lists, as argv and as shell text."""
    verdict = place.verdict(**call)
    assert verdict.decision is ALLOW, verdict


BYPASSES = [
    # chaining and pipes on the back of an allowed beginning
    "show && bash", "show || bash", "show ; bash", "show\nbash", "show | bash", "show |& bash",
    "show & bash", "show &",
    "bash && show", "show && fixed status", "show && fixed status --x= more", "show|bash", "show;bash",
    "show&&bash",
    "show | safe x", "show | show", "show && ./show", "show && sub/../show", "count <<< x",
    "show && cd sub && show",
    # substitution
    "show $(bash)", "show `bash`", "show \"$(bash)\"", "show \"`bash`\"", "show ${x:-$(bash)}",
    "show $((x[$(bash)]))",
    "show <(bash)", "show >(bash)", "show $'\\x3b'", "show $\"bash\"", "$(show)", "show ${x@P}", "show $x",
    # here-documents and here-strings
    "show <<E\n$(bash)\nE", "show <<'E'\nx\nE", "show <<-E\nE\nbash", "bash <<< 'erase'", "show <<E\nE\nbash",
    # functions, aliases, assignments
    "show() { bash; }; show", "function show { bash; }; show", "alias show=bash; show",
    "alias show=bash\nshow",
    "PATH=. show", "LD_PRELOAD=./x.so show", "x=1 show", "IFS=x show", "x=show; $x", "BASH_ENV=x show",
    "show=bash",
    "env=1; show", "export PATH=.; show", "hash -p ./evil show; show", "unset x; show",
    "declare -x PATH=.; show",
    # wrappers and interpreters
    "env show", "env -S 'show a'", "sudo show", "xargs show", "find . -exec show", "timeout 5 show",
    "nohup show", "nice show",
    "git -c core.pager=bash log", "git -c alias.x=!bash x", "ssh host show", "bash -c show", "sh -c show",
    "python3.11 -c 1",
    "perl -e 1", "awk 'BEGIN{system(\"bash\")}'", "sed 1e show", "tar --checkpoint-action=exec=bash",
    "vim -c :!bash", "make show",
    "busybox show", "busybox sh", "time show", "command show", "exec show", "builtin eval show",
    "eval show", "nohup env show",
    # look-alikes and what hides
    "ѕhow", "shоw", "ｓｈｏｗ", "show\u200b", "show\u00a0bash", "show '\u202e'", "show\u2028bash",
    "show\rbash", "show '\x1b[8m'",
    "show\x0bbash", "show\x0cbash", "show '\u3164'", "\ufeffshow",
    # globs, braces, tildes, quoting
    "/bin/b?sh", "show *", "show ?", "show [a]", "show {a,bash}", "show ~", "s{how,}", "show ~root",
    "show a=~", "show 'a", "show \"a",
    "\\show", "sh\\ow", "show \\; bash", "show \\\n bash", "sho$'w'", "show #x", "show a#\nbash",
    "show !!", "show !$",
    # redirections
    "show > /etc/x", "show >> x", "show < x", "show 2>&1", "show &> x", "> x show", "show >| x",
    "show <> x", "exec 3> x",
    # builtins, some of which evaluate what they are given
    "test -v 'x[$(bash)]'", "[ -v 'x[$(bash)]' ]", "[[ -v x ]]", "(( x ))", "printf -v 'x[$(bash)]' y",
    "read 'x[$(bash)]'",
    "trap bash EXIT", "mapfile -C bash -c 1", "declare 'x[$(bash)]=1'", "let 'x[$(bash)]'",
    "unset 'x[$(bash)]'", "printf %s x", "echo x",
    "wait -p 'x[$(bash)]'", "source x", ". x", "enable -f x y", "complete -C bash x", "kill 1", "true",
    "cd sub", "true && show", ":",
    # compound commands
    "if show; then bash; fi", "while show; do bash; done", "for x in a; do show; done",
    "case a in a) bash;; esac", "{ show; }",
    "(show)", "( show ) | count", "coproc show", "select x in a; do show; done", "! show",
    "show && { bash; }", "[[ a =~ b ]] && show",
    # nothing that could be judged
    ";", "#", "# show", "()", "show && ", "show ;; show", "show; #", "show & show",
    # programs with two meanings, links, the workspace
    "link && show", "alias", "inside && show", "inside", "./show", "sub/../show", "./show-link",
    "named/show", "named/show && show", "linked/show",
]  # fmt: skip


@pytest.mark.parametrize("text", BYPASSES, ids=ascii)
def test_no_bypass_is_allowed(place: Place, text: str) -> None:
    """Shell text that could start, or change, anything beyond the rules is never allowed."""
    try:
        verdict = place.verdict(shell=text)
    except ArgumentProblem:
        return  # refused before policy: there is no such program
    assert verdict.decision is not ALLOW, verdict


CALLS: list[dict[str, Any]] = [
    # wrappers and interpreters as argv
    {"argv": ["env", "show"]},
    {"argv": ["bash", "-c", "show"]},
    {"argv": ["xargs", "show"], "stdin": "x"},
    {"argv": ["alias"]},
    {"argv": ["link"]},
    {"argv": ["./show"]},
    {"argv": ["named/show"]},
    {"argv": ["linked/show"]},
    {"argv": ["./show"], "cwd": "linked"},
    {"argv": ["fixed"]},
    {"argv": ["fixed", "status"]},
    {"argv": ["fixed", "status", "--x=1", "more"]},
    {"argv": ["fixed", "--x=1", "status"]},
    {"argv": ["safe", "x"]},
    {"argv": ["safe", "x"], "cwd": "sub", "stdin": "x"},
    # what rides along
    {"argv": ["show"], "stdin": "x"},
    {"argv": ["show"], "secrets": ["TOKEN"]},
    {"shell": "show", "stdin": "x"},
    {"shell": "show", "secrets": ["TOKEN"]},
    {"shell": "show && count", "stdin": "x"},
    {"shell": "show && show", "secrets": ["TOKEN"]},
    {"shell": "safe x && safe y", "cwd": "sub", "env": {"LC_ALL": "C"}},
    *(
        {"argv": ["show"], "env": {name: "x"}}
        for name in (
            "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "BASH_FUNC_show",
            "GIT_SSH_COMMAND", "PYTHONPATH",
            "PERL5LIB", "RUBYOPT", "NODE_OPTIONS", "PATH", "IFS", "SHELLOPTS", "PS4", "EDITOR", "PAGER",
            "HOME", "LC_ALL",
        )
    ),
    *({"shell": "show | count", "env": {name: "x"}} for name in ("PATH", "BASH_ENV", "IFS", "A")),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_no_call_carries_more_than_its_rule(place: Place, call: dict[str, Any]) -> None:
    """Wrappers, other arguments, variables, input and secrets turn an allowed call into a question."""
    assert place.verdict(**call).decision is ASK


@pytest.mark.parametrize(
    "text",
    [
        "erase", "erase x", "show && erase x", "erase x | count", "show; erase", "show\nerase",
        "erase > x", "x=1 erase",
        "show $(erase x)", "show `erase`", "if show; then erase -rf \"$x\"; fi", "(erase)", "{ erase; }",
        "erase & show",
        "er\\ase x", "'erase' x", "$'erase' x", "! erase", "while erase; do show; done", "f() { erase; }",
        "show <(erase)",
        "echo x && erase", "erase $x", "show <<E\n$(erase)\nE", "PATH=. erase",
        "for x in a; do erase; done", "./../bin/../bin/erase || erase",
    ],
    ids=ascii,
)  # fmt: skip
def test_a_deny_reaches_into_shell_text(place: Place, text: str) -> None:
    """A denied program is denied wherever in the text it can be seen, and no human is asked."""
    verdict = place.verdict(shell=text)
    assert (verdict.decision, verdict.rule_id) == (DENY, "no-erase")


def test_rules_on_the_shell_itself_apply_to_text(place: Place) -> None:
    """Denying bash, shell text, or the tool denies lists and opaque text, and no single literal command."""
    for more in (
        Rule("x", DENY, "ops", program=str(place.programs / "bash")),
        Rule("x", DENY, "ops", in_shell=True),
    ):
        strict = Bundle("strict", (*place.bundle.rules, more))
        for text in ("show && show", "show $(show)"):
            assert evaluate(strict, place.text(text)).rule_id == "x"
        assert evaluate(strict, place.text("show")).decision is ALLOW
    # Arguments of the shell itself are no condition that its text could meet.
    for rest, decision in ((False, ALLOW), (True, DENY)):
        bare = Rule("x", DENY, "ops", program=str(place.programs / "bash"), argv=(), rest=rest)
        strict = Bundle("strict", (*place.bundle.rules, bare))
        assert evaluate(strict, place.text("show && show")).decision is decision
    all_denied = Bundle("all", (Rule("x", DENY, "ops", tool="process.run"),))
    assert evaluate(all_denied, place.text("show $(show)")).decision is DENY


def test_a_link_of_the_agents_own_to_an_allowed_program_is_not_allowed(place: Place) -> None:
    """By the path it is called by an interpreter finds its library: only name and real path are allowed."""
    for name in ("linked/show", f"{place.workspace}/linked/show", f"/proc/self/root{place.programs}/show"):
        assert place.verdict(argv=[name]).decision is ASK
    for name in ("show", str(place.programs / "show")):
        assert place.verdict(argv=[name]).decision is ALLOW


def test_one_literal_command_is_the_same_call_as_its_words(place: Place) -> None:
    """Given as text or as words, the target is equal in everything."""
    assert place.text("show -a 'b c'") == place.target(argv=["show", "-a", "b c"])
    assert place.text("./show x") == place.target(argv=["./show", "x"])


def test_a_list_names_every_permission_it_rests_on(place: Place) -> None:
    """The verdict on a list has the rules of all its commands, and the target all its programs."""
    verdict = evaluate(place.bundle, place.text("show a | count; show b"))
    assert verdict.rule_id == "show,count"
    commands = json.loads(verdict.target)["commands"]
    assert [os.path.basename(item["program"]) for item in commands] == ["show", "count", "show"]  # noqa: PTH119
    assert [item.get("piped", False) for item in commands] == [False, True, False]


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (("bin", "elsewhere"), "more than one `show`"),
        (("workspace", "bin"), "lies in the workspace"),
        (("bin", "workspace/sub"), "a directory for programs lies in the workspace"),
        (("bin", "a:b"), "search path"),
    ],
)
def test_names_with_two_meanings_are_not_allowed_in_a_list(
    place: Place, paths: tuple[str, ...], why: str
) -> None:
    """What bash could find elsewhere than the kernel did is a question."""
    root = place.programs.parent
    search = SearchPath(tuple(str(root / path) for path in paths))
    target = replace(place, settings=replace(place.settings, search=search)).text("show | count")
    assert why in target.opaque
    assert evaluate(place.bundle, target).decision is ASK


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("linked/show && show", "is not absolute"),
        ("{workspace}/linked/show && show", "is a link"),
        ("show && no-such-program", "there is no program"),
        ("no-such-program | count", "there is no program"),
        ("{workspace}/show && show", "lies in the workspace"),
        ("{programs}/show && show", ""),
    ],
)
def test_what_bash_would_look_up_anew_is_not_allowed_in_a_list(place: Place, text: str, why: str) -> None:
    """A name or link that may lead elsewhere when bash gets there, or nowhere yet, is a question."""
    target = place.text(text.format(workspace=place.workspace, programs=place.programs))
    assert why in target.opaque
    assert evaluate(place.bundle, target).decision is (ASK if why else ALLOW)


@pytest.mark.parametrize("extra", [{"secrets": ["TOKEN"]}, {"env": {"LC_ALL": "C"}}])
def test_what_a_rule_lists_rides_along_with_one_command_only(place: Place, extra: dict[str, Any]) -> None:
    """A variable or secret that the rules list still makes a list a question: bash reads it too."""
    names, secrets = frozenset({"LC_ALL"}), frozenset({"TOKEN"})
    generous = Bundle(
        "g", tuple(replace(item, env=names, secrets=secrets) for item in place.bundle.rules[:2])
    )
    arguments = {"shell": "show | count", **extra}
    assert evaluate(generous, place.target(argv=["show"], **extra)).decision is ALLOW
    assert evaluate(generous, place.text("show | count")).decision is ALLOW
    assert evaluate(generous, place.target(**arguments)).rule_id == "default.shell"


def test_a_bash_of_the_workspace_is_not_trusted(place: Place) -> None:
    """A list is a question when the bash that would read it can be rewritten by the agent."""
    own = place.workspace / "sub"
    (own / "bash").symlink_to(place.workspace / "show")
    search = SearchPath((str(own), str(place.programs)))
    target = replace(place, settings=replace(place.settings, search=search)).text("show | count")
    assert target.opaque == "bash itself lies in the workspace"
    (own / "bash").unlink()


def test_provenance_escalates(place: Place) -> None:
    """A rule may ask about calls that follow a tool's output, and an allow may be for the others only."""
    escalation = Rule("read-first", ASK, "", provenance=Provenance.UNTRUSTED)
    escalating = Bundle("e", (*place.bundle.rules, escalation))
    trusting = Bundle(
        "t", tuple(replace(item, provenance=Provenance.TRUSTED) for item in place.bundle.rules[:2])
    )
    for text in ("show", "show | count"):
        target = place.text(text)
        later = replace(target, provenance=Provenance.UNTRUSTED)
        assert evaluate(escalating, target).decision is ALLOW
        assert evaluate(escalating, later).rule_id == "read-first"
        assert evaluate(trusting, target).decision is ALLOW
        assert evaluate(trusting, later).decision is ASK
