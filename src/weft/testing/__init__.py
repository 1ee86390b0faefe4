"""What ships for tests: fakes that pass the conformance suites, the suites themselves, random graphs."""
