"""Executors: what runs leases. Threads, processes, and a simulator with a virtual clock."""
