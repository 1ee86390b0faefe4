"""The examples of the page on pipelines that use Weft's own words, each run as it stands there."""

import re
from pathlib import Path

import pytest

from tests.integration.test_pipeline import Place
from weft.runs.reading import read_run

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def example(name: str) -> str:
    """The pipeline of a name on the page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(f"name: {name}\n")]
    return str(found)


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def attempts(place: Place, step: str) -> int:
    return read_run(place.folder_of()).step(step).attempts


class TestRetries:
    def test_an_exit_code_that_is_named_is_tried_again(self, place):
        place.file.write_text(example("patient"))
        assert place.run().state == "failed"
        assert attempts(place, "fetch") == 2

    def test_others_fail_at_once_and_say_so(self, place):
        place.file.write_text(example("patient").replace("exit 75", "exit 3"))
        result = place.run()
        assert attempts(place, "fetch") == 1
        assert "It is not retried: exit code 3 is not one of 75, 100-110." in str(result.error)

    def test_a_timeout_is_exit_code_124(self, place):
        text = example("patient").replace("exit 75", "sleep 60").replace("retry:", "timeout_s: 0.2\n      retry:")
        place.file.write_text(text.replace("on: [75", "on: [124"))
        assert place.run().state == "failed"
        assert attempts(place, "fetch") == 2


def test_words_for_all_steps(place):
    place.file.write_text(example("words-for-all"))
    assert place.run().state == "succeeded"
    assert place.log("one") == "C.UTF-8\n"
