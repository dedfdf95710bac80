"""Takes over the socket path given as argument, as any process that may write to the directory can."""

import os
import socket
import sys
from pathlib import Path

if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        os.read(0, 1)
