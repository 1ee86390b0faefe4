"""Progress bars of a run: on a terminal only, with what runs now."""

from __future__ import annotations

import io

from weft.engine.view import JobView, VertexView
from weft.runtime.progress import bars


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def vertex(name: str, state: str, n: int, finished: int, executing: int) -> VertexView:
    return VertexView(name, state, n, finished, executing, 0, 0, 0.0, 0.0)


def test_nothing_is_shown_off_a_terminal():
    assert bars("job", io.StringIO()) is None


def test_running_vertices_and_the_whole_are_shown(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    shown = bars("wordcount", stream)
    assert shown is not None
    with shown:
        shown.update(
            JobView(
                "job",
                "running",
                (
                    vertex("count", "running", 10, 4, 2),
                    vertex("merge", "configured", 1, 0, 0),
                    vertex("later", "configuring", -1, 0, 0),
                ),
                {},
                {},
            )
        )
        shown._progress.refresh()
    text = stream.getvalue()
    assert "wordcount" in text
    assert "count" in text
    assert "4/10" in text
    assert "4/11" in text
    assert "merge" not in text
