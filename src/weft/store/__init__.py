"""The bytes of a run on one node: memory, then shared memory, then disk; and the index of runs and cache."""
