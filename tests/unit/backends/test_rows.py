"""What tasks read through a shuffle: rows of small pieces, of large ones, and rows that do not fit."""

import pytest

from weft import Graph, Session, shuffle
from weft.model.errors import TaskError


@pytest.fixture(scope="module", params=["threads", "processes"])
def session(request):
    with Session(request.param, workers=2) as made:
        yield made


def small(row):
    return [row * 100 + piece for piece in range(40)]


def large(row):
    return [bytes([row, piece]) * 4096 for piece in range(40)]


def one_too_many(row):
    return [row] * 41


def large_and_one_too_many(row):
    return [bytes(4096)] * 41


@pytest.mark.parametrize("rows", [small, large])
def test_a_task_reads_its_piece_of_every_row(session, rows):
    graph = Graph("rows")
    graph.add(list, shuffle(graph.map(rows, range(100), name="rows"), 40), name="read").keep()
    found = session.run(graph, progress=False)["read"]
    assert found == [[rows(row)[piece] for row in range(100)] for piece in range(40)]


@pytest.mark.parametrize("rows", [one_too_many, large_and_one_too_many])
def test_a_row_with_more_pieces_than_partitions_is_an_error(session, rows):
    graph = Graph("rows")
    graph.add(list, shuffle(graph.map(rows, range(6), name="rows"), 40), name="read").keep()
    with pytest.raises(TaskError, match="of 41, not one piece for each of 40"):
        session.run(graph, progress=False)
