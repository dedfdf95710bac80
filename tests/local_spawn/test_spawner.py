"""The process that forks is one that may fork."""

import subprocess
import sys
from pathlib import Path

import tyrum_local_spawn

FORBIDDEN = ("grpc", "asyncio", "google", "threading", "tyrum_provider_kit", "concurrent", "multiprocessing")


def test_the_spawner_loads_the_standard_library_only() -> None:
    """The spawner starts isolated from site-packages and loads neither grpc nor asyncio nor threads."""
    package = str(Path(tyrum_local_spawn.__file__).parents[1])
    script = (
        "import sys; sys.path.append(sys.argv.pop()); import tyrum_local_spawn.supervision.spawner; "
        "print('\\n'.join(sys.modules))"
    )
    command = [sys.executable, "-I", "-S", "-c", script, package]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert "tyrum_local_spawn.supervision.supervisor" in loaded
    assert not [name for name in loaded if name.split(".")[0] in FORBIDDEN]
