"""`tyrum version`."""

from importlib.metadata import version

from tyrum_gateway.cli.options import sub_app

app = sub_app("Print the version.")


def installed() -> str:
    """Return the version of the installed distribution."""
    return version("tyrum")


@app.command()
def show() -> None:
    """Print the version."""
    print(f"tyrum {installed()}")
