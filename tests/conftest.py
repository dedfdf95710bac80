"""Settings every test and every process it starts runs under."""

import os

# Providers fork from single-threaded spawners only; grpc's own fork handlers would wait for threads that are
# gone.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
