"""A gateway whose pages look at two rows or turns each, so that most pages of a filter are empty.

Run as `python narrow_gateway.py --state-dir DIR --config FILE`; composed for tests only.
"""

import argparse
import asyncio
import os
from pathlib import Path

from tyrum_gateway.app import runs
from tyrum_gateway.bootstrap import serve
from tyrum_gateway.config import load_settings
from tyrum_gateway.rpc import audit


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    chosen = parser.parse_args()
    runs.LOOKED_AT = audit.LOOKED_AT = 2
    runs._BATCH = audit._BATCH = 1
    settings = load_settings(chosen.config, environment=os.environ, state_dir=chosen.state_dir)
    asyncio.run(serve(settings, version="test", ready=lambda _: None))


if __name__ == "__main__":
    main()
