"""Servers of parties: identity, transport, records and jobs of one party, and its interface for clients."""

import os

# gRPC reads it when it is loaded. It would write a line to stderr for each stranger that connects.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
