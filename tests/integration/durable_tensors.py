"""A program with a durable session of tensors, to be killed: more than its memory, and lengths that are waited for.

Called with the backend, the state folder, and a folder for marks: each function of chunks leaves one at its end, and
does not end while there is a file with its name and `hold` beside that folder.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import weft.tensor as wt

N = 2**21
CHUNK = 2**17
MEMORY = 12 * 2**20
WANTED = np.arange(N, dtype=np.float64)
ANSWER = float(WANTED[WANTED % 3 == 0][::2].sum() + WANTED.max())


def noted(chunk: Any, marks: str, name: str) -> Any:
    """Return a chunk, once it may be returned."""
    while Path(marks).with_name(f"hold-{name}").exists():
        time.sleep(0.005)
    Path(marks, f"{name}-{int(chunk[0]) if len(chunk) else 'none'}.{os.getpid()}.{time.monotonic_ns()}").touch()
    return chunk


def answer(marks: str) -> wt.Tensor:
    """Return what is computed: a slice and other chunks need the lengths of what is picked."""
    x = wt.arange(N, dtype=wt.float64, chunk_size=CHUNK).map_chunk(noted, (marks, "early"), dtype=np.float64)
    picked = x[wt.equal(x % 3, 0)][::2].rechunk(CHUNK).map_chunk(noted, (marks, "late"), dtype=np.float64)
    return picked.sum() + x.max()


if __name__ == "__main__":
    # Without second attempts: each function of chunks is counted.
    with wt.Session(
        backend=sys.argv[1], workers=2, memory=MEMORY, durable=sys.argv[2], direct=False, backups=False
    ) as session:
        print(float(answer(sys.argv[3])))
