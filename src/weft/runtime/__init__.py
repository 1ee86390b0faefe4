"""The imperative shell around the master: the loop, the pool, sessions, state on disk, clocks."""
