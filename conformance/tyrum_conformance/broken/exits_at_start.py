"""Says why on standard error and ends with status 7 before it listens."""

import sys


def main() -> int:
    """Give up."""
    sys.stderr.write("fatal: cannot open the license file /opt/acme/license.key\n")
    return 7
