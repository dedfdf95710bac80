"""A gateway of its own process that hosts one provider. Arguments: state and runtime directory."""

import asyncio
import sys
from pathlib import Path

from tests.host.support import FAST, spec
from tyrum_provider_host import Lifecycle, ProviderHost


async def main() -> None:
    """Admit, say so, and wait to be killed."""
    host = ProviderHost(
        [spec("good")], state_dir=Path(sys.argv[1]), runtime_dir=Path(sys.argv[2]), bounds=FAST
    )
    async with host:
        await host.wait_settled(30.0)
        status = host.status("good")
        assert status.lifecycle is Lifecycle.ADMITTED, status.reason
        sys.stdout.write(f"{status.pid}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
