"""Shell text is a script only where nobody can doubt what bash does with it."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.samples import SLOW
from tyrum_gateway.tools.shell import Opaque, Operator, Script, SimpleCommand, parse
from tyrum_gateway.tools.shell.reserved import BUILTINS, RESERVED_WORDS

BASH = shutil.which("bash") or "bash"
AND, OR, PIPE, THEN = Operator.AND, Operator.OR, Operator.PIPE, Operator.THEN

LITERAL: list[tuple[str, list[list[str]], list[Operator]]] = [
    ("ls", [["ls"]], []),
    ("  ls \t -l\n", [["ls", "-l"]], []),
    ("\n\nls\n\n", [["ls"]], []),
    ("ls;", [["ls"]], []),
    (
        "ls -la --color=auto src/a.b_c-d,e:f@g+h%i",
        [["ls", "-la", "--color=auto", "src/a.b_c-d,e:f@g+h%i"]],
        [],
    ),
    ("/usr/bin/wc -l ./a ../b", [["/usr/bin/wc", "-l", "./a", "../b"]], []),
    ("grep -n 'a b|c;d&e>f$g`h*i' x", [["grep", "-n", "a b|c;d&e>f$g`h*i", "x"]], []),
    ('grep "a b | c" "it\'s"', [["grep", "a b | c", "it's"]], []),
    ("grep 'say \"so\"'", [["grep", 'say "so"']], []),
    ("show a'b'\"c\"d", [["show", "abcd"]], []),
    ("show '' \"\" x", [["show", "", "", "x"]], []),
    ("'show' \"a\"", [["show", "a"]], []),
    ("sh''ow a", [["show", "a"]], []),
    ("show 'äöü' \"日本\"", [["show", "äöü", "日本"]], []),
    (
        "show '~' '#x' '{a,b}' '!x' '[a]' '\\' \"a*b\"",
        [["show", "~", "#x", "{a,b}", "!x", "[a]", "\\", "a*b"]],
        [],
    ),
    ("show if then fi do { x", [], []),
    ("show if then fi do in", [["show", "if", "then", "fi", "do", "in"]], []),
    ("show a=b =c d=", [["show", "a=b", "=c", "d="]], []),
    ("show 1 2 -3 0x10 007 1e5 5,6", [["show", "1", "2", "-3", "0x10", "007", "1e5", "5,6"]], []),
    ("7z x -- -", [["7z", "x", "--", "-"]], []),
    ("show % + @ , : . -", [["show", "%", "+", "@", ",", ":", ".", "-"]], []),
    ("a && b || c", [["a"], ["b"], ["c"]], [AND, OR]),
    ("a | b | c", [["a"], ["b"], ["c"]], [PIPE, PIPE]),
    ("a; b\nc\n\n  d", [["a"], ["b"], ["c"], ["d"]], [THEN, THEN, THEN]),
    ("a&&b||c|d;e", [["a"], ["b"], ["c"], ["d"], ["e"]], [AND, OR, PIPE, THEN]),
    ("a |\n\n b &&\n c ||\n d", [["a"], ["b"], ["c"], ["d"]], [PIPE, AND, OR]),
    ("a ;\nb", [["a"], ["b"]], [THEN]),
    ("a 'x'\n'b' y", [["a", "x"], ["b", "y"]], [THEN]),
]
"""Texts with the words that bash makes of them; those without commands are not literal."""

OPAQUE = [
    "", " ", "\n", ";", "a ; ; b", "a;;", "a &&", "a |", "&& a", "| a", "a && | b", "a\n&& b", "a\n; b",
    "# a",
    # operators beyond the list
    "a & b", "a &", "a |& b", "a &| b", "a &&& b", "a ||| b", "a ;& b", "a ;; b", "a ;;& b", "! a", "time a",
    # redirections and here-documents
    "a > x", "a >> x", "a < x", "a 2>&1", "a 2> x", "a &> x", "a >| x", "a <> x", "a <<< x", "a <<E\nb\nE",
    "a <<-E\nb\nE", "a <<'E'\nb\nE", ">x a", "a {fd}> x", "a 3<x", "exec > x",
    # expansions
    "a $x", "a ${x}", "a $(b)", "a `b`", "a $((1+1))", "a $[1]", "a $'b'", 'a $"b"', 'a "$x"', 'a "$(b)"',
    'a "`b`"',
    "a $", "a $?", "a $$", "a $@", "$a", "${a}b", "$(a)", "`a`", "a <(b)", "a >(b)", "a =(b)",
    # globs, braces, tildes, history, comments
    "a *", "a ?", "a [b]", "a {b,c}", "a {1..3}", "a ~", "a ~b", "a b=~", "a b:~", "a !b", "a b#c", "a #b",
    "a b^c",
    "a @(b)", "a +(b)", "a !(b)", 'a "!b"', "a*", "/bin/l?", "{a,b}", "~/a", "^a^b",
    # escapes and quotes
    "a \\b", "a b\\ c", "\\a", "r\\m x", "a \\\nb", "a 'b", 'a "b', "a 'b\nc'", 'a "b\nc"', 'a "b\\"c"',
    'a "\\\\"',
    "a b'", "''", "'' a", '"" a', "a'", '"a b" c', "'a b' c", "'a;b'", '"a|b"',
    # compound commands, functions, assignments
    "( a )", "(a)", "{ a; }", "if a; then b; fi", "while a; do b; done", "until a; do b; done",
    "for x in y; do a; done",
    "for ((;;)); do a; done", "case a in b) c;; esac", "select x in y; do a; done", "f() { a; }",
    "function f { a; }",
    "a() b", "coproc a", "[[ a ]]", "(( 1 ))", "[ a ]", "x=1", "x=1 a", "x+=1 a", "x[0]=1 a", "x=(1) a",
    "PATH=. a",
    "LD_PRELOAD=x a", "IFS=x a", "a=b", "./a=b", "x=1; a", "declare x=1", "export x=1", "local x",
    "alias a=b", "unalias a",
    # builtins that evaluate or change what comes later, also quoted
    "eval a", "'eval' a", "e\"val\" a", "exec a", "command a", "builtin a", "source a", ". a", ".", ":",
    "cd a", "a && cd b",
    "test -v 'a[$(b)]'", "test a", "printf -v x y", "printf x", "echo a", "read x", "trap a EXIT",
    "mapfile -C a", "readarray x",
    "declare -n x=y", "typeset x", "readonly x", "let x=1", "set -x", "shopt -s expand_aliases",
    "enable -f x y", "hash -p a b",
    "type a", "ulimit -c 1", "umask 0", "wait", "kill 1", "jobs", "fg", "bg", "%1", "exit", "return",
    "break", "true", "false",
    "getopts a b", "history", "fc -s", "bind -x a", "complete -C a", "compgen -C a", "pushd a", "times",
    "logout", "pwd",
    # names that only look like a program's
    "ехec a", "ｌs", "l\u200bs", "ls\u00a0a", "ls\u2003a", "l\u0301s", "\ufeffls", "-ls", "+ls", "@ls",
    ",ls", "=ls", "%ls",
    # what does not show itself, or is no text
    "a '\u202eb'", "a '\u200b'", "a '\x1b[2J'", "a '\t'", "a\rb", "a\r\nb", "a\x00b", "a \x0b b",
    "a \x0c b", "a 'b\x7f'", "a 'b\x85'",
    "a '\u3164'", "a '\U000e0041'", "a '\ud800'", "a '\u2028'", "a é",
    # what the two readers read differently
    "a ==", "a b == c",
    # size
    "a " * 9000, "a;" * 17, "a " + "b " * 256, "a" * 20_000,
]  # fmt: skip


def script_of(words: list[list[str]], operators: list[Operator]) -> Script:
    """Make a script."""
    return Script(tuple(SimpleCommand(tuple(command)) for command in words), tuple(operators))


@pytest.mark.parametrize(("text", "words", "operators"), LITERAL, ids=[item[0] for item in LITERAL])
def test_literal_text_is_read_word_by_word(
    text: str, words: list[list[str]], operators: list[Operator]
) -> None:
    """Plain commands, quoted and joined in every permitted way, are read as bash reads them."""
    read = parse(text)
    if words:
        assert read == script_of(words, operators)
    else:
        assert isinstance(read, Opaque)


@pytest.mark.parametrize("text", OPAQUE, ids=ascii)
def test_everything_else_is_opaque(text: str) -> None:
    """Whatever is not on the list is refused with a reason and its place, never guessed at."""
    read = parse(text)
    assert isinstance(read, Opaque)
    assert read.reason
    assert 0 <= read.position <= len(text)


def test_every_builtin_and_reserved_word_of_bash_is_known() -> None:
    """What the installed bash runs by itself is never taken for a program, whatever its version adds."""
    listed = subprocess.run(
        [BASH, "--noprofile", "--norc", "-c", "compgen -b; compgen -k"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = set(listed.stdout.split())
    assert names - BUILTINS - RESERVED_WORDS == set()
    for name in names:
        assert isinstance(parse(f"{name} x"), Opaque)
        assert isinstance(parse(f"a && '{name}' x"), Opaque)


def test_real_bash_runs_what_was_read(tmp_path: Path) -> None:
    """Of every literal text, bash starts the programs that were read, with the arguments that were read."""
    log, programs = tmp_path / "log", tmp_path / "bin"
    programs.mkdir()
    # One write each, because the commands of a pipeline run at once.
    record = f'#!/bin/sh\nprintf "%s\\0" "${{0##*/}}" "$@" END >>{log}\n'
    texts = [item for item in LITERAL if item[1] and not any("/" in words[0] for words in item[1])]
    for text, words, operators in texts:
        for command in words:
            stub = programs / command[0]
            stub.write_text(record, encoding="utf-8")
            stub.chmod(0o755)
        log.write_text("", encoding="utf-8")
        subprocess.run(
            [BASH, "--noprofile", "--norc", "-c", text],
            env={"PATH": str(programs), "LANG": "C.UTF-8"},
            check=True,
            timeout=30,
        )
        ran = [line.split("\0") for line in log.read_text(encoding="utf-8").split("\0END\0")[:-1]]
        if OR in operators:  # every stub succeeds, so that what stands after `||` does not run
            assert ran
            assert all(command in words for command in ran), text
        else:  # in a pipeline there is no order
            assert sorted(ran) == sorted(words), text


WORDS = st.text(st.sampled_from("abz09_./:,+@%=- '|;&*?$`~#{}[]()<>!^äß日"), min_size=0, max_size=8)


def quote(word: str, *, double: bool) -> str:
    """Quote a word that holds no quote of its own kind."""
    return f'"{word}"' if double else f"'{word}'"


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.lists(st.tuples(WORDS, st.booleans()), max_size=6), st.sampled_from(["&&", "||", "|", ";", "\n"]))
def test_quoted_words_survive(words: list[tuple[str, bool]], sign: str) -> None:
    """Any quoted text without expansions arrives as it stands, in every command of a list."""
    quoted = [
        quote(word, double=double and not set(word) & set('"$`\\!'))
        for word, double in words
        if "'" not in word
    ]
    plain = tuple(word for word, _ in words if "'" not in word)
    read = parse(f"show {' '.join(quoted)} {sign} show {' '.join(quoted)}")
    assert isinstance(read, Script)
    assert [command.words for command in read.commands] == [("show", *plain)] * 2


PIECES = [
    "show", "rm", "ls", " ", " ", "\n", "\t", "'", '"', "\\", "$", "$(", ")", "`", "&&", "||", "|", ";",
    "&", "<", ">", "<<E",
    "E", "(", "{", "}", "[[", "]]", "if", "then", "fi", "=", "x=", "*", "?", "~", "#", "!", "eval", "echo",
    "a", "-1", "1", "é", "\0",
]  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
def test_what_is_accepted_holds_nothing_else(text: str) -> None:
    """No text raises, and in what is accepted every character is a word's, a blank or an operator's."""
    read = parse(text)
    if isinstance(read, Opaque):
        return
    bare = "".join(word for command in read.commands for word in command.words)
    rest = text
    for sign in "'\" \t\n|;&":
        rest, bare = rest.replace(sign, ""), bare.replace(sign, "")
    assert rest == bare
    assert all(command.words[0] not in BUILTINS | RESERVED_WORDS for command in read.commands)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("ls $(rm -r x)", [("ls", False), ("rm -r x", True)]),
        ("if a; then rm -rf \"$x\"; fi", [("a", True), ("rm -rf", False)]),
        ("x=1 rm y > z", [("rm y", True)]),
        ("r\\m x; 'r'm y; $'rm' w", [("rm x", True), ("rm y", True), ("rm w", True)]),
        ("(rm a; { rm b; }) & rm c", [("rm a", True), ("rm b", True), ("rm c", True)]),
        ("f() { rm a; }; f", [("rm a", True), ("f", True)]),
        ("cat <<E\n$(rm a)\nE", [("cat", True), ("rm a", True)]),
        ("cat <<'E'\nrm a\nE", [("cat", True)]),
        ("echo 'rm a' # rm b", [("echo rm a", True)]),
        ("$x a; ${y}z b", []),
    ],
)  # fmt: skip
def test_commands_are_seen_in_opaque_text(text: str, seen: list[tuple[str, bool]]) -> None:
    """A deny reaches commands wherever they stand, through quoting, and never text that is only data."""
    read = parse(text)
    assert isinstance(read, Opaque)
    assert sorted((" ".join(item.words), item.complete) for item in read.sightings) == sorted(seen)


def test_hostile_text_ends_soon() -> None:
    """The largest texts of the constructs that are slow to parse are judged in a bounded time."""
    for piece in ("x=(x=([[", "<<A ", "\n<<A\n", "${a", "$((", '"$(', "((", "[[ ", "`", "if ", "{ "):
        assert isinstance(parse((piece * 16_384)[: 16 * 1024]), Opaque)
