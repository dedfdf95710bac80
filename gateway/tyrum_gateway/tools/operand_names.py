"""Where a file's name may stand in an argument, for files to be shown and fixed with a call.

Invariant: this only finds more to fix and to show. What a program makes of its arguments nobody here knows,
so that a text counts when a file of that name exists.
"""


def names_in(argument: str) -> tuple[str, ...]:
    """Return the texts that may name a file, at most eight, the whole argument first.

    They are the argument, what follows its first and its last `=` (`--file=NAME`, `if=NAME`), what follows
    an option of one letter (`-fNAME`), and each of these without an `@` in front (`@NAME`, `key=@NAME`).
    """
    places = [argument]
    if argument.startswith("-") and argument[1:2].isalpha():
        places.append(argument[2:])
    if "=" in argument:
        places += [argument.partition("=")[2], argument.rpartition("=")[2]]
    names = (name for place in places for name in (place, place.removeprefix("@")))
    return tuple(dict.fromkeys(name for name in names if name))
