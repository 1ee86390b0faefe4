"""The imperative shell around the master: loop, pool, session, answers of the cache, clock."""
