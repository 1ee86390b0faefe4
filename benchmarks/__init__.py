"""Weft against its peers: `python -m benchmarks NAME [--json] [--rows a,b] [--rounds N]`.

A *suite* (a package here) is a list of `Spec`s, one for each row. A row's cases run in processes that stay alive, one
for Weft and one for each peer, and take turns: one round of ours, one of theirs. So imports and starts are not timed,
both sides are warm, and a disturbance of the machine meets both. Peers are installed in an environment of their own.
"""
