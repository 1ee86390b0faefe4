"""Walks the roads of `docs/road.md`: small runs enter these functions for the first time in this order."""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import weft
import weft.tensor as wt
from weft.admin.settings import Settings
from weft.wiring import load_pipeline, resume_run, run_pipeline

SOURCE = Path(weft.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "road.md"
STATION = re.compile(r"^## \d+\. .* — `(?P<file>[\w/]+\.py)` `(?P<function>[\w.]+)`$", re.MULTILINE)
TITLE = re.compile(r"^# (.*)$", re.MULTILINE)
PIPELINE = "name: road\nentry_points: {a: {command: 'echo hello'}, b: {command: 'echo again', deps: a}}\n"

Station = tuple[str, str]


def stations(road: str) -> list[Station]:
    """Return the stations of one of the roads that the page tells, by its title."""
    _, *parts = TITLE.split(PAGE.read_text())
    text = dict(zip(parts[::2], parts[1::2], strict=True))[road]
    return [(match["file"], match["function"]) for match in STATION.finditer(text)]


def entered(work: Callable[[], object]) -> list[Station]:
    """The functions of Weft that `work` enters, by their first entry, whatever the thread."""
    prefix = f"{SOURCE}/"
    seen: dict[Station, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix):
            seen.setdefault((code.co_filename.removeprefix(prefix), code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(seen)


def test_a_job_travels_the_road_that_the_page_tells(tmp_path):
    road = stations("The road a job travels")
    file = tmp_path / "run.yaml"
    file.write_text(PIPELINE)
    found = entered(lambda: run_pipeline(load_pipeline(str(file)), Settings(workers=1)))
    assert len(road) > 10
    assert [station for station in found if station in road] == road


def test_a_resumed_run_travels_the_road_that_the_page_tells(tmp_path):
    road = stations("The road of a resumed run")
    file = tmp_path / "run.yaml"
    file.write_text(PIPELINE.replace("echo again", f"test -e {tmp_path}/go"))
    failed = run_pipeline(load_pipeline(str(file)), Settings(workers=1))
    (tmp_path / "go").touch()
    found = entered(lambda: resume_run(failed.folder, Settings(workers=1)))
    assert failed.state == "failed"
    assert len(road) > 5
    assert [station for station in found if station in road] == road


def test_an_array_travels_the_road_that_the_page_tells():
    def compute():
        with wt.Session(workers=2):
            (wt.random.rand(1_000_000) + 1).sum().execute()

    road, found = stations("The road of an array"), entered(compute)
    assert len(road) > 10
    assert [station for station in found if station in road] == road


def test_every_file_that_the_page_names_is_there():
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text()))
    assert not [name for name in named if not any((root / name).is_file() for root in (SOURCE, PAGE.parents[1]))]
