"""Progress bars of a run: on a terminal only, with what runs now."""

from __future__ import annotations

import io
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

import weft
from weft.engine.view import JobView, VertexView
from weft.runtime import progress
from weft.runtime.progress import TerminalBars, bars, can_show


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
    assert isinstance(shown, TerminalBars)
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


class Notebook(ModuleType):
    """The modules of a notebook, which keep what is displayed: the pictures by id, the last one of each."""

    def __init__(self) -> None:
        super().__init__("IPython.display")
        self.shown: dict[str, Any] = {}
        self.count = 0

    def display(self, picture: Any, display_id: str) -> None:
        assert display_id not in self.shown
        self.update_display(picture, display_id)

    def update_display(self, picture: Any, display_id: str) -> None:
        self.shown[display_id] = picture
        self.count += 1


@pytest.fixture
def notebook(monkeypatch) -> Notebook:
    class Shell:
        kernel = object()

    main, display = ModuleType("IPython"), Notebook()
    main.get_ipython = Shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", main)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    return display


def test_a_notebook_shows_one_picture_that_changes_in_place(notebook):
    shown = bars("words & <b>", io.StringIO())
    assert shown is not None
    assert can_show(io.StringIO())
    with shown:
        shown.update(JobView("job", "running", (vertex("count", "running", 10, 4, 2),), {}, {}))
        (picture,) = notebook.shown.values()
        assert repr(picture) == "words & <b> 4/10\ncount 4/10"
        html = picture._repr_html_()
        assert "words &amp; &lt;b&gt;" in html
        assert "<progress max='10' value='4'>" in html
        shown.hide()
        shown.show()
    (picture,) = notebook.shown.values()
    assert picture._repr_html_() == "<table></table>"


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch):
    main = ModuleType("IPython")
    main.get_ipython = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", main)
    assert bars("job", io.StringIO()) is None
    assert not can_show(io.StringIO())


def seen_by(notebook: Notebook, begin: threading.Event, go_on: threading.Event) -> None:
    """Let tasks go on once bars were drawn while they ran."""
    assert begin.wait(180)
    before = notebook.count
    deadline = threading.Event()
    for _ in range(6000):
        if notebook.count > before + 1:
            break
        deadline.wait(0.01)
    go_on.set()


@pytest.mark.parametrize("way", ["result", "map", "run"])
def test_runs_and_maps_show_their_progress_in_a_notebook(notebook, monkeypatch, way):
    from weft.runtime import mapping, waiting

    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    monkeypatch.setattr(mapping, "PATIENCE_S", 0.0)
    begin, go_on = threading.Event(), threading.Event()

    def work(number: int) -> int:
        begin.set()
        assert go_on.wait(180)
        return number

    g = weft.Graph("shown")
    node = g.map(work, [1, 2], name="work")
    watcher = threading.Thread(target=seen_by, args=(notebook, begin, go_on))
    watcher.start()
    with weft.Session(workers=2) as session:
        if way == "map":
            assert session.map(work, [1, 2]).results() == [1, 2]
        elif way == "run":
            assert session.run(g)[node] == [1, 2]
        else:
            assert session.submit(g).result(180, progress=True)[node] == [1, 2]
    watcher.join()
    assert notebook.count > 2
