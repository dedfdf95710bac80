"""Prints the token that it reads from standard input, and ends."""

import sys

if __name__ == "__main__":
    sys.stderr.write(f"my token is {sys.stdin.readline()}")
    sys.exit(1)
