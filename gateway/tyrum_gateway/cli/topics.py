"""`tyrum help`: what holds for every command."""

from typing import Annotated

import typer

from tyrum_gateway.cli.failure import MEANINGS, ExitCode, Failure
from tyrum_gateway.cli.options import sub_app

app = sub_app("Explain exit codes, environment and output.")

ENVIRONMENT = {
    "TYRUM_CONFIG": "Configuration file for serve, config, policy and doctor; the command line wins.",
    "TYRUM_STATE_DIR": "State directory of the gateway; --state-dir wins.",
    "TYRUM_TOKEN_FILE": "File with the bearer token (mode 0600), instead of the state directory's own.",
    "TYRUM_TLS_CA": "Authority of a distant gateway's certificate, as --ca.",
    "TYRUM_TLS_CLIENT_CERT": "Client certificate, as --client-cert.",
    "TYRUM_TLS_CLIENT_KEY": "Its private key, as --client-key.",
    "NO_COLOR": "When set, output has no colour and no styles.",
}
"""Environment variables the command line reads."""

_RULE = """\
A variable that is empty counts as not set; an option that is given is never
empty. No path begins with `~`, here, in options or in the configuration file:
write the whole path."""
OUTPUT = """\
--output text    for people; aligned columns, styles only on a terminal
--output json    one JSON document: an array for lists, an object otherwise
--output jsonl   one JSON object a line; `chat` and `conversations watch` print
                 every item of the stream as it comes

JSON is protobuf's own mapping of the messages in the contracts, with the field
names of the .proto files; 64-bit integers are strings. Data goes to stdout;
errors, hints and progress go to stderr. Control characters in text of models,
commands and providers are shown as escapes such as \\x1b, never obeyed."""


def exit_codes() -> str:
    """Return the table of exit codes."""
    return "\n".join(f"{code:>3}  {meaning}" for code, meaning in MEANINGS.items())


def environment() -> str:
    """Return the table of environment variables."""
    width = max(map(len, ENVIRONMENT))
    table = (f"{name:<{width}}  {meaning}" for name, meaning in ENVIRONMENT.items())
    return "\n".join([*table, "", _RULE])


def output() -> str:
    """Return what is promised about output."""
    return OUTPUT


TOPICS = {"exit-codes": exit_codes, "environment": environment, "output": output}


@app.command()
def topic(
    name: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Without it: the list.")] = None,
) -> None:
    """Explain a topic: exit-codes, environment or output. For a command, print its help."""
    from tyrum_gateway.cli.commands import COMMANDS, run  # noqa: PLC0415 - whose table this is in

    if name is None:
        print("\n".join(f"tyrum help {known}" for known in TOPICS))
    elif name in TOPICS:
        print(TOPICS[name]())
    elif name in COMMANDS:
        raise typer.Exit(run([name, "--help"]))
    else:
        known = ", ".join(TOPICS)
        raise Failure(
            f"unknown topic `{name}`",
            hint=f"one of: {known}; for commands: tyrum COMMAND --help",
            code=ExitCode.USAGE,
        )
