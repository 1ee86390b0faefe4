"""Servers of parties: identity, transport, records and jobs of one party, and its interface for clients."""
