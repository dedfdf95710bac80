"""A conforming provider with a child in its process group that outlives it unless somebody ends the group."""

import subprocess
import sys

from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit import run

if __name__ == "__main__":
    subprocess.Popen(["/bin/sleep", "300"], stdin=subprocess.DEVNULL)
    sys.exit(run(GoodProvider()))
