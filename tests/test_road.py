"""Walks the road of `docs/road.md`: a small pipeline enters these functions for the first time in this order."""

import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import weft
from weft.admin.settings import Settings
from weft.wiring import load_pipeline, run_pipeline

SOURCE = Path(weft.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "road.md"
STATION = re.compile(r"^## \d+\. .* — `(?P<file>[\w/]+\.py)` `(?P<function>[\w.]+)`$", re.MULTILINE)
PIPELINE = "name: road\nentry_points: {a: {command: 'echo hello'}, b: {command: 'echo again', deps: a}}\n"

Station = tuple[str, str]


def stations() -> list[Station]:
    return [(match["file"], match["function"]) for match in STATION.finditer(PAGE.read_text())]


@pytest.fixture
def entered(tmp_path) -> list[Station]:
    """The functions of Weft that one run enters, by their first entry, whatever the thread."""
    prefix = f"{SOURCE}/"
    seen: dict[Station, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix):
            seen.setdefault((code.co_filename.removeprefix(prefix), code.co_qualname))

    (tmp_path / "run.yaml").write_text(PIPELINE)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        result = run_pipeline(load_pipeline(str(tmp_path / "run.yaml")), Settings(workers=1))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert result.state == "succeeded"
    return list(seen)


def test_a_job_travels_the_road_that_the_page_tells(entered):
    road = stations()
    assert len(road) > 10
    assert [station for station in entered if station in road] == road


def test_every_file_that_the_page_names_is_there():
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text()))
    assert not [name for name in named if not any((root / name).is_file() for root in (SOURCE, PAGE.parents[1]))]
