"""Cryptography of federated components: encryption that adds, sets that intersect, sums under masks."""
