"""Profiles: what wins over what, where mistakes are told, and what a run remembers."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.admin.settings import load_settings
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.layout import NOWHERE, compile_loaded, spec_of
from weft.frontends.pipelines.loading import load_pipeline
from weft.frontends.pipelines.profiles import Profile
from weft.frontends.pipelines.reading import layered, profile_of
from weft.graph.logical import Retry
from weft.model.errors import PipelineError, UsageError
from weft.model.resources import Resources
from weft.runs.requests import RunRequest

TEXT = """
name: p
x-weft:
  defaults: {timeout_s: 60, resources: {cpu: 1, memory: 1KiB}, env: {A: file, B: file}}
  profiles:
    big:
      parameters: {rows: 100, second.rows: 200}
      settings: {workers: 2, docker_env: require}
      defaults: {timeout_s: 90, env: {B: profile}}
      steps: {second: {resources: {cpu: 8}, env: {C: strong}, retry: {user: 2}}}
      cache: {enable: true}
    empty:
cache: {max_expired_time: 5}
entry_points:
  first: {command: x, parameters: {rows: 1}}
  second: {command: y, parameters: {rows: 1}, env: {C: own}, x-weft: {timeout_s: 5, resources: {cpu: 2}}}
"""


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "weft.toml").write_text("")
    path: Path = tmp_path / "run.yaml"
    path.write_text(TEXT)
    return path


def test_a_profile_wins_over_the_file_and_the_command_line_over_it(file):
    plain = load_pipeline(str(file)).pipeline
    assert (plain.steps["first"].timeout_s, plain.cache.enable) == (60, False)
    loaded = load_pipeline(str(file), profile="big", overrides={"first.rows": "7"}).pipeline
    first, second = loaded.steps["first"], loaded.steps["second"]
    assert (first.parameters["rows"].value, second.parameters["rows"].value) == (7, 200)
    assert (first.timeout_s, second.timeout_s) == (90, 5)
    assert first.resources == Resources(cpu=1, memory=1024)
    assert second.resources == Resources(cpu=8, memory=1024)
    assert {name: text.value for name, text in first.env.items()} == {"A": "file", "B": "profile"}
    assert {name: text.value for name, text in second.env.items()} == {"A": "file", "B": "profile", "C": "strong"}
    assert (second.retry, first.retry) == (Retry(user=2), None)
    assert (loaded.cache.enable, loaded.cache.max_expired_time) == (True, 5)
    assert load_pipeline(str(file), profile="empty").pipeline.steps == plain.steps


def test_a_bare_name_of_the_command_line_wins_over_a_step_of_the_profile(file):
    assert load_pipeline(str(file), profile="big").pipeline.steps["second"].parameters["rows"].value == 200
    loaded = load_pipeline(str(file), profile="big", overrides={"rows": "7"}).pipeline
    assert [loaded.steps[name].parameters["rows"].value for name in ("first", "second")] == [7, 7]
    file.write_text(
        """
name: behind
x-weft: {profiles: {big: {parameters: {one.rows: 5, two.rows: 6}}}}
entry_points:
  one: {command: "echo {{rows}}", parameters: {rows: 1}}
  two: {reference: {component: shared}}
components:
  shared: {command: "echo {{rows}}", parameters: {rows: 1}}
"""
    )
    loaded = load_pipeline(str(file), profile="big", overrides={"rows": "7"}).pipeline
    assert [loaded.steps[name].parameters["rows"].value for name in ("one", "two")] == [7, 7]


def test_settings_of_a_profile_stand_between_the_environment_and_the_project(file):
    (file.parent / "weft.toml").write_text("workers = 9\nmemory = '1GiB'\n")
    found = profile_of(str(file), "big")
    settings = load_settings(start=file.parent, environ={}, profile=("big", found.settings))
    assert (settings.workers, settings.docker_env, settings.memory) == (2, "require", 1 << 30)
    assert str(settings.origin("workers")) == "profile (big)"
    environ = {"WEFT_WORKERS": "3", "WEFT_DOCKER_ENV": "ignore"}
    above = load_settings({"workers": "4"}, start=file.parent, environ=environ, profile=("big", found.settings))
    assert (above.workers, above.docker_env) == (4, "ignore")
    with pytest.raises(UsageError, match="profile big: worker: there is no setting") as caught:
        load_settings(start=file.parent, environ={}, profile=("big", {"worker": 3}))
    assert "workers" in caught.value.hint


def test_the_project_has_profiles_too_and_the_file_wins_word_by_word(file):
    words = """
    [profiles.big]
    parameters = {rows = 3, first = {rows = 4}}
    settings = {workers = 7, memory = "2GiB"}
    defaults = {timeout_s = 1, retry = {user = 5}}
    [profiles.mine.settings]
    workers = 1
    """
    (file.parent / "weft.toml").write_text(textwrap.dedent(words))
    found = profile_of(str(file), "big")
    assert found.parameters == {"rows": 100, "second.rows": 200}
    assert found.settings == {"workers": 2, "memory": "2GiB", "docker_env": "require"}
    first = load_pipeline(str(file), profile="big").pipeline.steps["first"]
    assert (first.timeout_s, first.retry, first.parameters["rows"].value) == (90, Retry(user=5), 100)
    assert profile_of(str(file), "mine").settings == {"workers": 1}
    assert load_settings(start=file.parent, environ={}).workers == 0


@pytest.mark.parametrize(
    ("own", "project", "expected"),
    [("n: 1", '"a.n" = 55', 1), ("n: 1, a.n: 7", '"a.n" = 55', 7), ("m: 1", '"a.n" = 55', 55)],
)
def test_a_bare_name_of_the_file_wins_over_a_step_of_the_project(tmp_path, own, project, expected):
    text = f"""
    name: p
    x-weft: {{profiles: {{one: {{parameters: {{{own}}}}}}}}}
    entry_points:
      a: {{command: "echo {{{{n}}}}", parameters: {{n: 0}}}}
      b: {{command: "echo {{{{m}}}}", parameters: {{m: 0}}}}
    """
    file = tmp_path / "run.yaml"
    file.write_text(textwrap.dedent(text))
    (tmp_path / "weft.toml").write_text(f"[profiles.one]\nparameters = {{{project}}}\n")
    assert load_pipeline(str(file), profile="one").pipeline.steps["a"].parameters["n"].value == expected


def test_an_unknown_name_gets_a_suggestion(file):
    with pytest.raises(UsageError, match="has no profile 'bigg'") as caught:
        load_pipeline(str(file), profile="bigg")
    assert caught.value.hint == "Did you mean big?"
    with pytest.raises(UsageError, match="standard input"):
        profile_of("-", "big")
    (file.parent / "weft.toml").write_text("profiles = 3\n")
    with pytest.raises(UsageError, match="profiles must be a table"):
        profile_of(str(file), "big")
    (file.parent / "weft.toml").write_text("[profiles.x]\nsetings = {}\n")
    with pytest.raises(PipelineError, match="did you mean `settings`"):
        profile_of(str(file), "big")


@pytest.mark.parametrize(
    ("profile", "column", "said"),
    [
        ("{setings: {}}", 11, "did you mean `settings`?"),
        ("{defaults: {retry: {user: -1}}}", 36, "from 0 to 1000"),
        ("{steps: {furst: {timeout_s: 3}}}", 19, "did you mean first?"),
        ("{steps: {first: {command: x}}}", 27, "unknown key"),
        ("{settings: {state_dir: x}}", 33, "cannot stand in a profile"),
        ("{settings: {workers: [1]}}", 31, "must be one value"),
        ("{cache: {enabled: true}}", 19, "did you mean `enable`?"),
        ("3", 10, "must be a map"),
        ("{}\n    '': {}", 5, "a profile needs a name"),
    ],
)
def test_each_mistake_has_its_place_whatever_profile_is_used(profile, column, said):
    text = f"name: p\nx-weft:\n  profiles:\n    one: {profile}\nentry_points: {{first: {{command: x}}}}\n"
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text, "run.yaml")
    at = 5 if "\n" in profile else 4
    assert (caught.value.line, caught.value.column) == (at, column), str(caught.value)
    assert said in str(caught.value)


def test_the_run_keeps_it_and_a_run_without_one_is_as_it_was(file):
    about: dict[str, Any] = {}
    for profile in ("", "big"):
        loaded = load_pipeline(str(file), profile=profile)
        about[profile] = spec_of(
            loaded, compile_loaded(loaded, "run-000001", NOWHERE), file.parent / "run-000001"
        ).about
    assert "profile" not in about[""]
    kept = Profile(**about["big"]["profile"])
    assert (kept.name, kept.settings) == ("big", {"workers": 2, "docker_env": "require"})
    assert about["big"]["overrides"] == {"rows": 100, "second.rows": 200}


def test_the_words_of_a_schedule_name_it():
    assert RunRequest("run.yaml", profile="big").words(Path("/"), {}) == ["--profile", "big"]


def test_in_python(tmp_path):
    text = """
    import weft

    @weft.command
    def say(word: str = "a", times: int = 1):
        return f"echo {word} {times}"

    @weft.pipeline(
        profiles={
            "loud": {
                "parameters": {"word": "LOUD", "say.times": 3},
                "settings": {"workers": 1},
                "defaults": {"retry": weft.Retry(user=4), "resources": weft.Resources(cpu=3)},
            }
        }
    )
    def flow(word: str = "quiet"):
        say(word)
    """
    file = tmp_path / "flow_with_profiles.py"
    file.write_text(textwrap.dedent(text))
    loaded = load_pipeline(str(file), profile="loud")
    step = loaded.pipeline.steps["say"]
    assert {name: one.value for name, one in step.parameters.items()} == {"word": "LOUD", "times": 3}
    assert (step.retry, step.resources) == (Retry(user=4), Resources(cpu=3))
    assert profile_of(str(file), "loud").settings == {"workers": 1}
    again = load_pipeline(str(file), profile="loud", overrides={"word": "given"})
    assert again.pipeline.steps["say"].parameters["word"].value == "given"


@weft.command
def tell(word: str = "a"):
    return f"echo {word}"


@weft.pipeline(profiles={"loud": {"parameters": {"word": "LOUD", "tell.word": "step"}}})
def talk(word: str = "quiet"):
    tell(word)


def test_run_of_a_function_takes_it(tmp_path):
    result = talk.run(profile="loud", state_dir=tmp_path / "state")
    assert result.steps["tell"].logs[0].path.read_text() == "step\n"


@weft.pipeline(profiles={"loud": {"parameters": {"tell.word": "step"}}})
def mumble():
    tell("quiet")


def test_parameters_of_a_run_win_over_those_of_its_profile(tmp_path):
    """`word` is a parameter of the step in one pipeline, and an argument of the function in the other."""
    result = mumble.run({"word": "given"}, profile="loud", state_dir=tmp_path / "state")
    assert result.steps["tell"].logs[0].path.read_text() == "given\n"
    result = talk.run({"word": "given"}, profile="loud", state_dir=tmp_path / "state")
    assert result.steps["tell"].logs[0].path.read_text() == "step\n"


def test_the_stronger_of_two_places_wins_by_a_bare_name_too(file):
    below, above = {"first.rows": "2", "second.rows": "3", "rows": "1"}, {"rows": "7", "second.rows": "8"}
    assert layered(str(file), below, above) == above
    assert layered("-", below, above) == above
    assert layered(str(file), below, {"first.rows": "5"}) == {**below, "first.rows": "5"}
    assert layered(f"{__file__}:talk", {"tell.word": "a"}, {"word": "b"}) == {"tell.word": "a", "word": "b"}
    assert layered(f"{__file__}:mumble", {"tell.word": "a"}, {"word": "b"}) == {"word": "b"}


def test_dates_of_a_profile_of_the_project_are_plain_text(file):
    (file.parent / "weft.toml").write_text(
        "[profiles.big]\nparameters = {day = 2024-01-02, days = [10:30:00]}\n"
        "steps.first.env = {DAY = 2024-01-02T10:30:00}\n"
    )
    file.write_text(
        TEXT.replace("{command: x, parameters: {rows: 1}}", "{command: x, parameters: {rows: 1, day: none, days: []}}")
    )
    first = load_pipeline(str(file), profile="big").pipeline.steps["first"]
    assert (first.parameters["day"].value, first.parameters["days"].value) == ("2024-01-02", ("10:30:00",))
    assert first.env["DAY"].value == "2024-01-02T10:30:00"
