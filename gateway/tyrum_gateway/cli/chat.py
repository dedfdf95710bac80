"""`tyrum chat`: one message, or a conversation at a prompt."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.options import Address, Output, StateDir, candidates, sub_app
from tyrum_gateway.cli.output import Format, interactive, note

if TYPE_CHECKING:
    from tyrum_gateway.cli.session import Session

app = sub_app("Talk to an agent.")

HELP = """\
/help   show this
/exit   leave; so does Ctrl-D on an empty line
Ctrl-C  clear the line; a second one leaves
        while a turn runs or asks: detach, and the turn goes on
Arrows  edit the line, and bring back earlier ones
Anything else is a message for the agent."""
"""What the prompt understands."""

LONGEST_MESSAGE = 256 * 1024
"""Bytes of a message, as `SendMessageRequest.text` says."""


@app.command()
def chat(
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The message; `-` reads it from stdin. Without it: a prompt."),
    ] = None,
    conversation: Annotated[
        str,
        typer.Option(
            "--conversation",
            "-c",
            metavar="ID",
            help="Continue this conversation: its id or the beginning of it.",
            autocompletion=candidates("conversation"),
        ),
    ] = "",
    *,
    last: Annotated[bool, typer.Option("--last", help="Continue the newest conversation of yours.")] = False,
    state_dir: StateDir = None,
    address: Address = None,
    output: Output = Format.TEXT,
) -> None:
    """Talk to an agent.

    On a terminal an approval is asked right here; elsewhere the turn waits until somebody answers it with
    `tyrum approvals`. Exits with 5 when an approval was denied or expired. Ctrl-C detaches; the turn goes on.
    """
    asking = output is Format.TEXT and interactive()
    if text == "-" or (text is None and not sys.stdin.isatty()):
        text = piped().strip()
        if not text:
            raise Failure("no message", hint='tyrum chat "TEXT"', code=ExitCode.USAGE)
    from tyrum_gateway.cli import identifiers  # noqa: PLC0415 - imports grpc
    from tyrum_gateway.cli.connection import find  # noqa: PLC0415
    from tyrum_gateway.cli.session import Session  # noqa: PLC0415

    if last:
        if conversation:
            raise Failure("give --conversation or --last, not both", code=ExitCode.USAGE)
        conversation = identifiers.last(find(state_dir, address), "conversation", mine=True)
    elif conversation:
        conversation = identifiers.whole(find(state_dir, address), "conversation", conversation)
    session = Session(lambda: find(state_dir, address), conversation, output, asking=asking)
    if text is not None:
        code = _turn(session, text)
        if not conversation and session.conversation_id and output is Format.TEXT:
            note(f"continue: tyrum chat --conversation {session.conversation_id} TEXT{session.flags}")
        raise typer.Exit(code)
    session.target()
    if conversation and (code := _rejoin(session)) is not ExitCode.OK:
        raise typer.Exit(code)
    raise typer.Exit(_prompt(session))


def piped() -> str:
    """Read the message on stdin: UTF-8, whatever the locale says; lines end with a line feed alone.

    Raises:
        Failure: It is longer than `LONGEST_MESSAGE`, not UTF-8, or cannot be read.
    """
    try:
        # Never all of it: stdin may be endless. Twice, because two characters may end a line and become one.
        data = sys.stdin.buffer.read(2 * LONGEST_MESSAGE + 1)
        text = data.decode() if len(data) <= 2 * LONGEST_MESSAGE else None
    except UnicodeDecodeError:
        raise Failure("the message on stdin is not valid UTF-8", code=ExitCode.USAGE) from None
    except OSError as error:
        raise Failure(f"cannot read the message: {error.strerror}", code=ExitCode.USAGE) from error
    text = None if text is None else text.replace("\r\n", "\n").replace("\r", "\n")
    if text is None or len(text.strip().encode()) > LONGEST_MESSAGE:
        raise Failure("the message on stdin is longer than 256 KiB; it was not sent", code=ExitCode.USAGE)
    return text


def _turn(session: "Session", text: str) -> ExitCode:
    try:
        return asyncio.run(session.send(text))
    except KeyboardInterrupt:
        session.tell_detached()
        return ExitCode.INTERRUPTED


def _rejoin(session: "Session") -> ExitCode:
    try:
        asyncio.run(session.rejoin())
    except KeyboardInterrupt:
        note(f"detached; the conversation goes on\ncontinue: {_continue(session)}")
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _continue(session: "Session") -> str:
    return f"tyrum chat --conversation {session.conversation_id}{session.flags}"


def _prompt(session: "Session") -> ExitCode:
    import readline  # noqa: F401, PLC0415 - gives `input` line editing and history

    note("Write a message; /help shows the keys, /exit or Ctrl-D ends.")
    interrupted = False
    while True:
        try:
            text = input("> ").strip()
            text.encode()
        except UnicodeError:
            note("error: the message is not valid UTF-8; it was not sent")
            continue
        except EOFError:
            print()
            return _left(session, ExitCode.OK)
        except KeyboardInterrupt:
            print()
            if interrupted:
                return _left(session, ExitCode.INTERRUPTED)
            interrupted = True
            note("the line is cleared; Ctrl-C again leaves")
            continue
        interrupted = False
        if text == "/exit":
            return _left(session, ExitCode.OK)
        if text == "/help":
            note(HELP)
        elif text and _turn(session, text) is ExitCode.INTERRUPTED:
            return ExitCode.INTERRUPTED


def _left(session: "Session", code: ExitCode) -> ExitCode:
    if session.conversation_id:
        note(f"continue: {_continue(session)}")
    return code
