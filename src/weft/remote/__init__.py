"""Functions that run in parallel, call one another and spawn more: in the shape of Mars's `mars.remote`.

    import weft.remote as wr

    def fib(n):
        if n < 2:
            return n
        parts = [wr.spawn(fib, (n - 1,)), wr.spawn(fib, (n - 2,))]
        return sum(wr.ExecutableTuple(parts).execute().fetch())

    print(wr.spawn(fib, (10,)).execute().fetch())

A function that waits for what it has spawned gives its worker back meanwhile. `docs/remote.md` tells the rules.
"""

from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.remote.scripts import run_script
from weft.remote.spawning import Object, spawn

__all__ = ["ExecutableTuple", "Object", "run_script", "spawn"]
