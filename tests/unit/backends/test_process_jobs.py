"""What worker processes are sent: frames that a socket takes in parts, code once, and the values that they lack."""

import mmap
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from tests.unit.backends.rig import job_of, launch_of, posted_events
from tests.unit.engine.hand import body
from weft.backends.nursery import exit_text, take_peak
from weft.backends.process_jobs import (
    NOT_SENT,
    LeaseMessage,
    NeedsHelperError,
    ProcessJob,
    RemoteLease,
    WorkerConnection,
    needed,
)
from weft.graph.builder import Graph, gather, one_to_one, shuffle
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, Group, OneToOne
from weft.model.errors import ProgramError
from weft.store.blocks import BlockManager
from weft.store.rows import as_row
from weft.store.segments import SegmentWriter
from weft.worker.channel import FrameEncoder
from weft.worker.messages import PAGE_BYTES
from weft.worker.remote_store import LARGE


class Rig:
    def __init__(self, store: BlockManager, folder: str, graph: Graph) -> None:
        self.loop = posted_events()
        self.job = job_of(graph)
        self.numbers = count(1)
        self.local = ProcessJob(self.job, store, self.loop, 1_000, self.numbers, SegmentWriter(folder))
        ours, self.far = socket.socketpair()
        ours.setblocking(False)
        self.conn = WorkerConnection(0, ours, mmap.mmap(-1, PAGE_BYTES), FrameEncoder(folder, "w0-"), [])

    def lease(self, vertex: str, lo: int, hi: int, number: int = 1) -> RemoteLease:
        lease = self.local.lease(launch_of(self.job, vertex, lo, hi, lease=number), RemoteLease)
        lease.prepare(self.local, self.conn, number)
        return lease

    def sent(self, lease: RemoteLease) -> LeaseMessage:
        """Pack a lease, and record it as sent."""
        message = LeaseMessage(lease, slow=True)
        self.conn.codes.update(message.codes)
        self.conn.cones.update(message.cones)
        self.conn.kinds.update(message.kinds)
        for known, at, values in message.marks:
            for index, value in zip(range(at, at + len(values)) if isinstance(at, int) else at, values, strict=True):
                known[index] = value
        return message

    def close(self) -> None:
        self.far.close()
        self.conn.close()


@pytest.fixture
def rig_of(tmp_path):
    store = BlockManager(1 << 20, spill=tmp_path / "spill")

    @contextmanager
    def made(graph: Graph) -> Iterator[Rig]:
        rig = Rig(store, str(tmp_path), graph)
        try:
            yield rig
        finally:
            rig.close()

    yield made
    store.close()


def pair(reads: Any = one_to_one, n: int = 4, **fields: Any) -> Graph:
    g = Graph("g")
    a = g.add(body, n=n, name="a")
    g.add(body, reads(a), n=1 if reads is gather else n, name="b", **fields)
    return g


# -------------------------------------------------------------------------------------------------- connections


def test_frames_that_do_not_fit_into_a_socket_keep_their_order(rig_of):
    with rig_of(pair()) as rig:
        frames = [bytes([number]) * 300_000 for number in range(4)]
        with rig.conn.lock:
            sent = [rig.conn.send(frame) for frame in frames]
        assert not sent[-1]
        received = bytearray()
        reader = threading.Thread(target=lambda: received.extend(rig.far.recv(1_200_000, socket.MSG_WAITALL)))
        reader.start()
        while True:
            with rig.conn.lock:
                if rig.conn.flush():
                    break
        reader.join(180)
        assert received == b"".join(frames)
        assert not rig.conn.outbox


def test_frames_to_a_dead_worker_are_dropped(rig_of):
    with rig_of(pair()) as rig:
        rig.far.close()
        with rig.conn.lock:
            assert rig.conn.send(b"hello")
            assert not rig.conn.outbox


# -------------------------------------------------------------------------------------------------- leases


def test_nothing_of_a_reported_lease_is_given_back(rig_of):
    """Its report, which is on the way to the job, counts the units that would be given back as done."""
    with rig_of(pair(n=10)) as rig:
        lease = rig.lease("a", 1, 8)
        rig.conn.current = lease
        rig.conn.page.pos, rig.conn.page.hi = 1, 8
        assert lease.shrink() == 5
        rig.conn.page.pos = 4
        with rig.conn.lock:
            rig.conn.leave()
        assert rig.conn.current is None
        assert lease.shrink() is None


def test_a_lease_that_a_worker_runs_is_shortened_in_the_shared_page(rig_of):
    with rig_of(pair(n=10)) as rig:
        lease = rig.lease("a", 0, 10)
        rig.conn.current = lease
        page = rig.conn.page
        page.pos, page.hi = 3, 10
        assert (lease.at, lease.shrink(), page.hi, lease.hi) == (3, 7, 7, 7)
        page.pos = 6
        assert lease.shrink() is None
        rig.conn.current = None
        assert lease.at == 0


def test_a_stop_reaches_the_page_of_the_worker_that_runs_the_lease(rig_of):
    with rig_of(pair()) as rig:
        first, second = rig.lease("a", 0, 2, 1), rig.lease("a", 2, 4, 2)
        rig.conn.current = first
        second.raise_stop()
        assert (second.stop, rig.conn.page.stop) == (True, 0)
        first.raise_stop()
        assert rig.conn.page.stop == 1


def test_code_and_values_are_sent_once(rig_of):
    with rig_of(pair(gather)) as rig:
        rig.local.store.put_range(rig.local.column("a", 4, 0), 0, [1, 2, 3, 4])
        message = rig.sent(rig.lease("b", 0, 1))
        assert (len(message.codes), len(message.marks)) == (1, 1)
        assert message.assignment.cells
        again = rig.sent(rig.lease("b", 0, 1, 2))
        assert (again.codes, again.marks, again.assignment.cells) == ({}, [], b"")
        assert again.assignment.codes == message.assignment.codes


def test_values_of_narrow_edges_are_not_kept_by_the_worker(rig_of):
    with rig_of(pair()) as rig:
        rig.local.store.put_range(rig.local.column("a", 4, 0), 0, [1, 2, 3, 4])
        for number in (1, 2):
            message = rig.sent(rig.lease("b", 1, 3, number))
            assert (message.marks, bool(message.assignment.cells)) == ([], True)


def test_a_worker_keeps_what_it_reads_through_two_edges_of_which_one_is_wide(rig_of):
    g = Graph("g")
    a = g.add(body, n=4, name="a")
    g.add(body, one_to_one(a), gather(a), n=4, name="b")
    with rig_of(g) as rig:
        rig.local.store.put_range(rig.local.column("a", 4, 0), 0, [1, 2, 3, 4])
        cells = pickle.loads(rig.sent(rig.lease("b", 1, 2)).assignment.cells)
        assert all(keep for *_, keep, _ in cells)
        assert not rig.sent(rig.lease("b", 2, 4, 2)).assignment.cells


def shuffled(rig_of, rows: list[Any]) -> Any:
    """Tasks b read the pieces of `rows`, as many as there are rows."""
    n = len(rows)
    g = Graph("g")
    g.add(body, shuffle(g.add(body, n=n, name="a"), n), n=n, name="b")
    rig = rig_of(g)
    return rig, [as_row(row, n, "a") for row in rows]


def rows_of(message: LeaseMessage) -> list[int]:
    """Return the rows that a message brings."""
    cells = pickle.loads(message.assignment.cells) if message.assignment.cells else []
    return [
        row for _, _, at, values, *_ in cells for row in (range(at, at + len(values)) if isinstance(at, int) else at)
    ]


def test_a_worker_gets_the_sparse_rows_with_pieces_for_its_tasks_once_each(rig_of):
    n = 1_000
    made, rows = shuffled(rig_of, [{(7 * i + k) % n: i for k in range(2)} for i in range(n)])
    with made as rig:
        column = rig.local.column("a", n, n)
        rig.local.store.put_range(column, 0, rows)
        sizes = []
        for number, (lo, hi) in enumerate([(0, 10), (5, 15), (15, 16), (15, 16)], 1):
            known = [row for row in range(n) if any(sent[row] is not NOT_SENT for sent in rig.conn.sent.values())]
            wanted = [i for i in range(n) if any(lo <= part < hi for part in rows[i].of("")) and i not in known]
            message = rig.sent(rig.lease("b", lo, hi, number))
            assert rows_of(message) == wanted
            sizes.append(len(message.assignment.cells))
        assert sizes[0] < 2_000, "bytes for the rows that are read, not for all 1,000"
        assert sizes[-1] == 0


def test_a_worker_gets_all_rows_where_one_is_missing(rig_of):
    n = 10
    made, rows = shuffled(rig_of, [{i: i} for i in range(n)])
    with made as rig:
        column = rig.local.column("a", n, n)
        rig.local.store.put_range(column, 0, rows)
        assert rows_of(rig.sent(rig.lease("b", 3, 4, 1))) == [3]
        rig.local.store.free_range(column, 7, 8)
        assert rows_of(rig.sent(rig.lease("b", 3, 5, 2))) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        rig.local.store.put_range(column, 7, [as_row({7: 70}, n, "a")])
        assert rows_of(rig.sent(rig.lease("b", 4, 5, 3))) == [7]


def test_items_travel_lease_by_lease(rig_of):
    g = Graph("g")
    g.map(abs, [1, -2, 3, -4], name="a")
    g.map(abs, range(4), name="b")
    with rig_of(g) as rig:
        ((place, first, _),) = rig.sent(rig.lease("a", 1, 3)).assignment.items
        assert (place, first) == (0, 1)
        assert rig.sent(rig.lease("b", 1, 3, 2)).assignment.items == ()


def test_slow_work_is_left_to_a_helper(rig_of):
    g = Graph("g")
    g.add(body, n=1, name="params", params={"x": 1})
    g.map(abs, [bytes(LARGE + 1)], name="items")
    g.add(lambda: 1, n=1, name="lambda")
    with rig_of(g) as rig:
        for number, vertex in enumerate(("params", "items", "lambda"), 1):
            lease = rig.lease(vertex, 0, 1, number)
            with pytest.raises(NeedsHelperError):
                LeaseMessage(lease, slow=False)
            LeaseMessage(lease, slow=True)
            if vertex != "items":  # its code is known now
                LeaseMessage(lease, slow=False)
            lease.release()


def test_what_cannot_be_pickled_is_named(rig_of):
    lock = threading.Lock()
    g = Graph("g")
    g.add(body, n=1, name="a", params={"lock": lock})
    g.map(abs, [1, lock], name="b")
    c = g.add(body, n=1, name="c")
    g.add(body, gather(c), n=1, name="d")
    with rig_of(g) as rig:
        with pytest.raises(ProgramError, match="program of 'a' cannot be sent"):
            LeaseMessage(rig.lease("a", 0, 1, 1), slow=True)
        with pytest.raises(ProgramError, match="item 1 of 'b', of type lock"):
            LeaseMessage(rig.lease("b", 0, 2, 2), slow=True)
        rig.local.store.put_range(rig.local.column("c", 1, 0), 0, [lock])
        with pytest.raises(ProgramError, match="input of 'd', of type lock"):
            LeaseMessage(rig.lease("d", 0, 1, 3), slow=True)


def test_files_of_a_lease_go_with_it_and_those_of_a_job_with_the_job(rig_of, tmp_path):
    g = Graph("g")
    g.map(len, [bytes(2 * LARGE), bytes(2 * LARGE)], name="a", params={})
    with rig_of(g) as rig:
        lease = rig.lease("a", 0, 2)
        LeaseMessage(lease, slow=True)
        assert len(lease.files) == 1
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        lease.release()
        assert lease.files == []
        assert [path for path in tmp_path.rglob("*") if path.is_file()] != files
        rig.local.ship(bytes(2 * LARGE), rig.local.files)
        rig.local.close()
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_numbers_are_given_once_and_known_at_the_end(rig_of):
    with rig_of(pair()) as rig:
        assert rig.local.column_number("a") == rig.local.column_number("a")
        ((code, _),) = rig.local.shipped([rig.local.code(rig.job.inspector.spec("a"))], slow=True)
        assert rig.local.numbers() == ([code], [rig.local.column_number("a")], [])


# -------------------------------------------------------------------------------------------- ranges, processes


@pytest.mark.parametrize(
    ("router", "expected"),
    [
        (Broadcast(5, 3), [(0, 5)]),
        (OneToOne(5, 5), [(1, 3)]),
        (Group(5, 3, 2), [(2, 5)]),
        (Rectangles(6, 1, [[(0, 1, 0, 1)], [(4, 6, 0, 1), (0, 2, 0, 1)], [(1, 3, 0, 1)]]), [(0, 3), (4, 6)]),
    ],
)
def test_the_sources_of_a_lease_are_disjoint_ranges(router, expected):
    assert needed(router, 1, 3) == expected


def test_exits_are_told_in_words():
    assert exit_text(3 << 8) == "its process ended with status 3"
    assert exit_text(11) == "its process was killed by SIGSEGV"
    assert exit_text(9) == "its process was killed by SIGKILL (out of memory?)"
    assert exit_text(45) == "its process was killed by signal 45"


def test_the_peak_of_a_process_that_is_gone_is_0():
    assert take_peak(2**22 + 1) == 0
