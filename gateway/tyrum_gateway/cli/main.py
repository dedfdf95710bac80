"""Entry point of `tyrum`. Invariant: nothing heavy is imported before the command that needs it is known."""

import os
import sys


def main() -> None:
    """Run the command line and exit with one of the documented codes."""
    # Providers fork; grpc's own fork handlers would wait for threads that are gone in the child.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    # What grpc prints of a refused handshake stands beside the command's own error, and lets anybody who can
    # connect write into the gateway's log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from tyrum_gateway.cli import streams  # noqa: PLC0415 - Ctrl-C while it imports ends it like later

        streams.prepare()
        from tyrum_gateway.cli.commands import run  # noqa: PLC0415 - after the environment is set

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
