"""The coordination of parties: pure functions from documents of parties to documents and orders."""
