"""Reading shell text: two readers that know nothing of each other must agree, else the text is opaque.

Invariant: what this returns as a script is, to bash, exactly these programs with exactly these arguments.
Text that only one reader understands is never a script: things hide where a parser and bash differ.
"""

from tyrum_gateway.tools.shell import grammar, reader
from tyrum_gateway.tools.shell.script import MAX_BYTES, Opaque, Script


def parse(text: str) -> Script | Opaque:
    """Read shell text; without effect, bounded by the text's size, never raises.

    Text is a script when it consists of simple commands, none of them a builtin or reserved word, whose
    words are literal (letters, digits and `_ . / : , + @ % = -`, or quoted text without expansions), joined
    by `&&`, `||`, `|`, `;` or line ends. Everything else is opaque, with the commands seen in it.
    """
    try:
        source = text.encode()
    except UnicodeEncodeError as error:
        return Opaque("half of a surrogate pair", error.start)
    if len(source) > MAX_BYTES:
        return Opaque(f"more than {MAX_BYTES // 1024} KiB", 0)
    if "\0" in text:
        return Opaque("a NUL character", text.index("\0"))
    try:
        reading = reader.read(text)
    except reader.Unreadable as problem:
        return Opaque(problem.reason, problem.position, grammar.sightings(source))
    if grammar.outline(source) != _outline(text, reading):
        return Opaque("the grammar reads it differently", 0, grammar.sightings(source))
    return reading.script()


def _outline(text: str, reading: reader.Reading) -> grammar.Outline:
    """Write down what the grammar must have seen."""
    offsets = _byte_offsets(text)
    return grammar.Outline(
        tuple(
            tuple((offsets[word.start], offsets[word.end]) for word in words) for words in reading.commands
        ),
        tuple(
            (joint.operator.value, offsets[joint.position]) for joint in reading.joints if not joint.line_end
        ),
    )


def _byte_offsets(text: str) -> list[int]:
    offsets = [0]
    for character in text:
        offsets.append(offsets[-1] + len(character.encode()))
    return offsets
