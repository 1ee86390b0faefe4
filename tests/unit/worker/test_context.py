"""What a running task may say, and how it is told that it said something wrong."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.model.errors import UsageError
from weft.model.program import Style
from weft.worker.context import WorkerTaskContext


class Host:
    """Keeps what a task says."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def emit(self, lease: int, vertex: str, index: int, name: str, payload: Any) -> None:
        self.said.append((name, payload))

    def progress(self, lease: int, rows: int) -> None:
        self.said.append(rows)


@pytest.fixture
def context() -> WorkerTaskContext:
    lease: Any = SimpleNamespace(host=Host(), attempt=0, resources=None, id=1, stop=False, gate=None, worker=-1)
    code: Any = SimpleNamespace(vertex="scan", n=1, params={}, items=None, outputs={}, streams=(), style=Style.TASK)
    return WorkerTaskContext(lease, code, 0)


def said(context: WorkerTaskContext) -> list[Any]:
    host: Any = context.host
    return list(host.said)


def test_what_is_right_is_sent(context):
    context.emit("rows", {"n": 3})
    context.progress(np.int64(4))
    context.usage(gpu=np.float32(0.5), memory=7)
    assert said(context) == [("rows", {"n": 3}), 4, ("weft.usage", {"gpu": 0.5, "memory": 7.0})]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda ctx: ctx.emit(3), "scan emits an event called 3\nGive its name as text"),
        (lambda ctx: ctx.emit(""), "scan emits an event called ''"),
        (lambda ctx: ctx.emit("weft.x"), "Weft's own"),
        (lambda ctx: ctx.emit("keys", {1, 2}), "the payload of event 'keys' of scan is not JSON"),
        (lambda ctx: ctx.emit("keys", "x" * 70_000), "at most 65,536"),
        (lambda ctx: ctx.progress("x"), "scan reports 'x' rows"),
        (lambda ctx: ctx.progress(-1), "scan reports -1 rows"),
        (lambda ctx: ctx.progress(2.5), "scan reports 2.5 rows"),
        (lambda ctx: ctx.usage(gpu="x"), "scan reports the usage gpu='x'"),
        (lambda ctx: ctx.usage(gpu=None), "gpu=None"),
        (lambda ctx: ctx.usage(gpu=math.nan), "gpu=nan\nGive a number of at least 0"),
        (lambda ctx: ctx.usage(gpu=-1), "gpu=-1"),
        (lambda ctx: ctx.out("nowhere"), "scan has no output edge 'nowhere'"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_sent(context, call, told):
    with pytest.raises(UsageError) as caught:
        call(context)
    assert told in str(caught.value)
    assert said(context) == []
