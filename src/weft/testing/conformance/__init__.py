"""Suites that every implementation of a protocol must pass; each is a tuple of checks to call with a fresh one."""
