"""The tests of Tenure; the folders mirror those of ``src/tenure``."""

import os

# As the SDK has it, for tests that load gRPC before the SDK. With gRPC's own handling of forks a
# program that is started as another user (a command of PostgreSQL) may end with a segmentation
# fault, and before that it sends the requests of this process once more.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
