"""Makes texts: what the policy permits in many notations, near misses of that, edits, and bash at large.

The same seed makes the same texts, but for the path of the scratch root. Invariant: a good part is meant to
be allowed, so that finding no escape means something.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from tests.policy_oracle.fragments import PREFIXES, SPECIAL, SUFFIXES, TOKENS, WHOLE

_VALUES = (
    "a", "b", "a.txt", "dir/c.txt", "x-1", "-n", "--", "--long", "--k=v", "k=v", "1", "0", "2", "a b", " a",
    "a ", "", "$x", "$(wipe)", "`wipe`", "${x}", "*", "?", "[ab]", "{a,b}", "{1..3}", "~", "~/a", "#", "#a",
    "a#b", "!", "!!", "a!b", ";", "&", "|", ";wipe", "&& wipe", "|| wipe", ">made", "<a.txt", "(", ")",
    "a(b)", "'", '"', "it's", '"q"', "\\", "a\\b", "\\n", "\\\\", "a\nb", "\n", "a\tb", "\t", "a\rb", "é",
    "\U0001f600", "日本", "\u00a0", "a\u00a0b", "e\u0301", "%s", "@", "^", "=", "+", ",", ".", "..", "/",
    "a/b", "if", "then", "done", "time", "X=1", "-l", "--dry-run", "$", "a$", "$'x'", '$"x"', "a:b", "a=~",
    "]", "}", "\x01", "\x7f", "\x1b[0m", "x"*300,
)  # fmt: skip
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,/:@%^=")
_LIVE_IN_DOUBLE = frozenset('"\\$`')
_TAME = "".join(map(chr, range(32, 127))) + "éß日\U0001f600"
_TAME_SET = frozenset(_TAME)
_SEPARATORS = (" ", " ", " ", " ", "  ", "\t", " \t ")
_OPERATORS = (
    " && ",
    " && ",
    " || ",
    "; ",
    " | ",
    " | ",
    "&&",
    "||",
    ";",
    "|",
    "\n",
    " \n ",
    " &&\n",
    " ;\n",
    " |\n",
)
_BORDER = "'\"\\ \t\n|&;=%+-@:./,_#!$a0"
"""Characters at the border of what can be literal; edits put these in as often as the strange ones."""
_LARGEST = 16 * 1024
_KEPT = 400
_LONGEST_KEPT = 200


def every_fragment() -> Iterator[str]:
    """Put each piece once before, after and into what is permitted."""
    yield from WHOLE
    for piece in PREFIXES:
        yield f"{piece}show a"
        yield f"check; {piece}show"
    for piece in SUFFIXES:
        yield f"show{piece}"
        yield f"show a{piece}"
        yield f"show a{piece} b && status"


class Generator:
    """Texts of one seed, without end."""

    def __init__(self, seed: int, programs: Path) -> None:
        self._random = random.Random(seed)
        self._programs = programs
        self._kept: list[str] = []
        self._tame = False

    def __iter__(self) -> Iterator[str]:
        """Make one text after the other."""
        kinds = (
            (self.plain, 26),
            (self._near_miss, 24),
            (self._edited, 28),
            (self._whole, 6),
            (self._nested, 8),
            (self._soup, 7),
            (self._huge, 1),
        )
        makers, weights = zip(*kinds, strict=True)
        while True:
            (make,) = self._random.choices(makers, weights)
            yield make()

    def keep(self, text: str) -> None:
        """Take a text back that was allowed: further edits of it find where reading it ends."""
        if len(text) > _LONGEST_KEPT:
            return
        if len(self._kept) < _KEPT:
            self._kept.append(text)
        else:
            self._kept[self._random.randrange(_KEPT)] = text

    def plain(self) -> str:
        """Write commands that are permitted, with operators that start nothing else.

        Most of these texts keep to quotes around what needs them; the others use every notation.
        """
        self._tame = self._random.randrange(4) > 0
        commands = [self._command() for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 4)))]
        text = commands[0]
        for command in commands[1:]:
            text += self._random.choice(_OPERATORS) + command
        match self._random.randrange(12):
            case 0:
                text = self._random.choice((" ", "\t", "\n", "\n\n")) + text
            case 1:
                text += self._random.choice((" ", "\t", "\n", ";", " ;", "\n\n"))
            case _:
                pass
        return text

    def _command(self) -> str:
        match self._random.randrange(20):
            case 0 | 1:
                words = ["list", "-l", self._value()]
            case 2 | 3:
                words = ["status"]
            case 4 | 5:
                words = ["fetch", "--dry-run", *self._values(3)]
            case 6 | 7:
                words = ["pick", f"--id={self._value()}"]
            case 8:
                words = [self._random.choice(("echo", "test")), *self._values(2)]
            case 9 | 10 | 11 | 12 | 13:
                words = ["check", *self._values(3)]
            case _:
                words = ["show", *self._values(4)]
        written = [self._quoted(word) for word in words]
        if self._random.randrange(10):
            written[0] = words[0]
        if self._random.randrange(16) == 0:
            written[0] = self._by_path(words[0])
        text = written[0]
        for word in written[1:]:
            text += self._random.choice(_SEPARATORS) + word
        return text

    def _by_path(self, name: str) -> str:
        directory = self._random.choice(
            (
                f"{self._programs}",
                f"{self._programs}",
                f"{self._programs}/",
                f"{self._programs}/.",
                f"/{self._programs}",
                f"{self._programs}/../programs",
                f"{self._programs}/../workspace",
                f"{self._programs.parent}/workspace/dir",
                f"../{self._programs.name}",
                "dir/..",
            )
        )
        return f"{directory}/{name}"

    def _values(self, most: int) -> list[str]:
        return [self._value() for _ in range(self._random.randrange(most + 1))]

    def _value(self) -> str:
        if self._tame:
            return self._tame_value()
        if self._random.randrange(4):
            return self._random.choice(_VALUES)
        return "".join(
            chr(self._random.randrange(32, 127))
            if self._random.randrange(8)
            else self._random.choice("é\n\t\u00a0")
            for _ in range(self._random.randrange(1, 9))
        )

    def _tame_value(self) -> str:
        """Choose a word that one pair of quotes can hold."""
        while True:
            word = self._random.choice(_VALUES)
            if self._random.randrange(4) == 0:
                word = "".join(self._random.choice(_TAME) for _ in range(self._random.randrange(1, 12)))
            if not set(word) - _TAME_SET:
                return word

    def _quoted(self, word: str) -> str:
        """Write a word in one of the ways that mean exactly it."""
        if word and set(word) <= _BARE and self._random.randrange(6):
            return word
        if self._tame:
            cut = self._random.choice((0, 0, 0, self._random.randrange(len(word) + 1)))
            return "".join(self._tamely(part) for part in (word[:cut], word[cut:]) if part) or "''"
        match self._random.randrange(6):
            case 0 | 1:
                return _single(word)
            case 2 | 3:
                return _double(word)
            case 4:
                return _escaped(word)
            case _:
                cut = self._random.randrange(len(word) + 1)
                ways = (_single, _double, _escaped)
                return self._random.choice(ways)(word[:cut]) + self._random.choice(ways)(word[cut:])

    def _tamely(self, part: str) -> str:
        ways = [_single] if "'" not in part else []
        ways += [_double] if not set(part) & _LIVE_IN_DOUBLE else []
        return self._random.choice(ways or [_single])(part)

    def _near_miss(self) -> str:
        """Write what is permitted, with one or two pieces that may change everything."""
        text = self.plain()
        for _ in range(self._random.choice((1, 1, 1, 2))):
            match self._random.randrange(6):
                case 0 | 1:
                    text = self._random.choice(PREFIXES) + text
                case 2:
                    text = self._into(text, self._random.choice(PREFIXES))
                case 3:
                    text = self._into(text, self._random.choice(SUFFIXES))
                case _:
                    text += self._random.choice(SUFFIXES)
        return text

    def _edited(self) -> str:
        """Change a few characters of a text."""
        match self._random.randrange(6):
            case 0 | 1:
                text = self.plain()
            case 2 | 3 | 4 if self._kept:
                text = self._random.choice(self._kept)
            case _:
                text = self._random.choice(WHOLE)
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 5))):
            text = self._edit(text)
        return text

    def _edit(self, text: str) -> str:
        at = self._random.randrange(len(text) + 1)
        match self._random.randrange(9):
            case 0 | 1 | 2:
                return text[:at] + self._character() + text[at:]
            case 3 | 4:
                return text[:at] + self._character() + text[at + 1 :]
            case 5:
                return text[:at] + text[at + 1 :]
            case 6:
                end = min(len(text), at + self._random.randrange(1, 6))
                return text[:end] + text[at:end] + text[end:]
            case 7:
                return text[:at] + text[at : at + 2][::-1] + text[at + 2 :]
            case _:
                other = self.plain()
                return text[:at] + other[self._random.randrange(len(other) + 1) :]

    def _character(self) -> str:
        return self._random.choice(self._random.choice((SPECIAL, _BORDER)))

    def _into(self, text: str, piece: str) -> str:
        at = self._random.randrange(len(text) + 1)
        return text[:at] + piece + text[at:]

    def _whole(self) -> str:
        return self._random.choice(WHOLE)

    def _soup(self) -> str:
        tokens = self._random.choices(TOKENS, k=self._random.randrange(1, 12))
        return self._random.choice(("", " ", " ")).join(tokens)

    def _nested(self, depth: int = 3) -> str:
        """Write bash by its grammar, of which little is literal."""
        if depth == 0:
            return self._command()
        inner = self._nested(depth - 1)
        other = self._nested(depth - 1)
        quoted = _single(inner)
        choices = (
            inner, f"{inner}; {other}", f"{inner} && {other}", f"{inner} || {other}", f"{inner} | {other}",
            f"{inner}\n{other}", f"{inner} |& {other}", f"{inner} & {other}", f"( {inner} )",
            f"{{ {inner}; }}", f"if {inner}; then {other}; fi", f"while {inner}; do {other}; break; done",
            f"for x in a b; do {inner}; done", f"case a in a) {inner};; *) {other};; esac",
            f"f() {{ {inner}; }}; {other}", f"show $({inner})", f'show "$({inner})"', f"show `{inner}`",
            f"show <({inner})", f"show <<E\n{inner}\nE\n{other}", f"show <<'E'\n{inner}\nE\n{other}",
            f"show <<<{quoted}", f"eval {quoted}", f"bash -c {quoted}", f"show {quoted}",
            f"show \\\n{inner}", f"! {inner}", f"time {inner}", f"coproc {inner}", f"X=1 {inner}",
            f"[[ a ]] && {inner}", f"((1)) && {inner}", f"{inner} # {other}", f"# {inner}\n{other}",
            f"show ${{x:-{inner}}}", f"show $(({inner}))", f"trap {quoted} EXIT; {other}",
            f"alias show={quoted}\n{other}", f"X=({inner}); {other}",
        )  # fmt: skip
        return self._random.choice(choices)

    def _huge(self) -> str:
        size = self._random.choice((1000, 4000, 8000, 16000))
        unit = self._random.choice(
            (
                "x",
                "'x'",
                '"x"',
                "\\x",
                " a",
                "\n",
                " ",
                ";",
                "(",
                "{ ",
                "$(",
                "`",
                "${x:-",
                "'",
                '"',
                "<",
                "!",
                "[",
                "é",
                "\\\n",
            )
        )
        words = unit * (size // len(unit.encode()))
        text = self._random.choice(
            ("show {}", "show '{}'", 'show "{}"', "{}", "show{}", "{} show", "show a; {}")
        )
        if not self._random.randrange(4):
            return " && ".join([self._command()] * (size // 200))[:_LARGEST]
        return text.replace("{}", words)[:_LARGEST]


def _single(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _double(word: str) -> str:
    return '"' + "".join("\\" + char if char in _LIVE_IN_DOUBLE else char for char in word) + '"'


def _escaped(word: str) -> str:
    """Write a word without quotes, but for what cannot be escaped: a newline, and nothing at all."""
    written = "".join(char if char in _BARE else "'\n'" if char == "\n" else "\\" + char for char in word)
    return written or "''"
