"""A conforming provider that exchanges its own file, once it runs, for one with the same content."""

import os
import shutil
import sys

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import run

if __name__ == "__main__":
    shutil.copy(__file__, __file__ + ".new")
    os.replace(__file__ + ".new", __file__)  # noqa: PTH105 - a plain rename is the point
    sys.exit(run(GoodProvider()))
