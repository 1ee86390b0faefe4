"""Settings and where they come from."""

import pytest

from weft.admin.settings import NAMES, Settings, load_settings, user_config_file
from weft.model.errors import UsageError
from weft.model.sizes import parse_size, unit_missing


@pytest.fixture
def load(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    user_file = tmp_path / "config.toml"

    def load(flags=None, *, environ=None, project_text=None, user_text=None) -> Settings:
        for file, text in ((project / "weft.toml", project_text), (user_file, user_text)):
            if text is not None:
                file.write_text(text)
        return load_settings(flags, start=project, environ=environ or {}, user_file=user_file)

    return load


def test_defaults(load):
    settings = load()
    assert settings == Settings()
    assert settings.worker_count >= 1
    assert settings.user_name
    assert str(settings.origin("workers")) == "default"


def test_each_place_wins_over_the_next(load, tmp_path):
    flags, environ = {"workers": 1}, {"WEFT_WORKERS": "2"}
    project_text, user_text = "workers = 3", "workers = 4"
    everything = {"environ": environ, "project_text": project_text, "user_text": user_text}
    found = load(flags, **everything)
    assert (found.workers, str(found.origin("workers"))) == (1, "flag (--workers)")
    found = load(**everything)
    assert (found.workers, str(found.origin("workers"))) == (2, "environment (WEFT_WORKERS)")
    found = load()
    assert (found.workers, found.origin("workers").place) == (3, str(tmp_path / "project" / "weft.toml"))
    (tmp_path / "project" / "weft.toml").unlink()
    found = load()
    assert (found.workers, found.origin("workers").kind) == (4, "user")


def test_a_flag_that_was_not_given_is_none(load):
    assert load({"workers": None}, environ={"WEFT_WORKERS": "2"}).workers == 2


def test_every_setting_can_be_given_everywhere(load):
    texts = {
        "backend": "processes",
        "workers": "3",
        "memory": "2GiB",
        "eviction": "lru",
        "stream_window": "8MiB",
        "gpus": "2",
        "gpu_type": "T4",
        "cluster": "auto",
        "env": "/r.txt",
        "working_dir": "/w",
        "spill": "/a",
        "state_dir": "/b",
        "storage": "s3://bucket/prefix",
        "color": "never",
        "quiet": "true",
        "user": "ada",
        "docker_env": "require",
        "mounts": "off",
        "trace": "false",
        "durability": "power",
        "isolation": "ports",
        "outer_network": "true",
        "without_gpus": "true",
        "tensorboard": "auto",
        "compat": "strict",
        "priority": "-7",
        "queue": "nightly",
        "requests": "ignore",
        "keep_last": "3",
        "notify": "https://example.org/hook",
    }
    assert set(texts) == set(NAMES)
    from_environment = load(environ={f"WEFT_{name.upper()}": text for name, text in texts.items()})
    bare = ("workers", "gpus", "quiet", "trace", "outer_network", "without_gpus", "priority", "keep_last")
    lines = [f"{name} = {text}" if name in bare else f'{name} = "{text}"' for name, text in texts.items()]
    from_file = load(project_text="\n".join(lines))
    from_flags = load(texts)
    values = [[getattr(each, name) for name in NAMES] for each in (from_environment, from_file, from_flags)]
    assert values[0] == values[1] == values[2]
    assert from_file.memory == 2 << 30


def test_paths_in_a_file_count_from_it(load, tmp_path):
    assert load(project_text='state_dir = "../x"').state_dir == tmp_path / "project" / ".." / "x"
    assert load(user_text='spill = "y"').spill == tmp_path / "y"
    assert load(user_text='spill = "s3://bucket/y"').spill == "s3://bucket/y"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("1k", 1000),
        ("1KiB", 1024),
        ("64 MB", 64 * 10**6),
        ("1.5GiB", 3 << 29),
        ("2t", 2 * 10**12),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["0", "512B", "512 MB", "4294967296", "1048576", 512, None, "", "x"])
def test_a_unit_is_missed_in_texts_of_small_numbers_alone(value):
    assert unit_missing(value) == ""
    assert unit_missing(" 512 ") == "A number without a unit counts bytes: write 512MiB, or 512B."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wokers = 3", r"weft.toml: there is no setting 'wokers'\nDid you mean workers"),
        ("zzz = 3", "There are: backend"),
        ('workers = "many"', "weft.toml: workers is 'many'; it must be a whole number"),
        ("workers = true", "weft.toml: workers is True"),
        (
            'workers = "3"',
            "workers is '3'; it must be a whole number from 0 to 999999\nLeave out the quotes",
        ),
        ('priority = "-7"', "whole number from -"),
        ('quiet = "true"', "true or false\nLeave out the quotes"),
        ("workers = -1", "whole number"),
        ("workers = 1.5", "whole number"),
        ('backend = "proceses"', r"one of threads, processes, ray\nDid you mean processes"),
        ('memory = "lots"', "number of bytes"),
        ('memory = "512"', "number of bytes with a unit\n.* write 512MiB, or 512B"),
        ("memory = -1", "number of bytes"),
        ("memory = true", "number of bytes"),
        ('color = "red"', "auto, always, never"),
        ('quiet = "maybe"', "true or false"),
        ("quiet = 1", "true or false"),
        ("user = 3", "one line of text"),
        ('user = "a\\u001bb"', "one line of text"),
        ("state_dir = 3", "path of a folder"),
        ('state_dir = ""', "path of a folder"),
        ("[backend]\nx = 1", "backend is"),
        ("workers = ", "is not TOML"),
        ("\x00", "is not TOML"),
        ("a = " + "[" * 100_000, "is not TOML"),
        ("#" * (1 << 20) + "\n", "larger than 1 MiB"),
    ],
)
def test_mistakes_name_file_and_key(load, text, said):
    with pytest.raises(UsageError, match=f"(?s){said}"):
        load(project_text=text)


def test_a_file_that_is_not_text(load, tmp_path):
    (tmp_path / "project" / "weft.toml").write_bytes(b'user = "\xff"')
    with pytest.raises(UsageError, match="not UTF-8"):
        load()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("WEFT_WORKERS", "x", "WEFT_WORKERS is 'x'"),
        ("WEFT_WORKRES", "3", "Did you mean WEFT_WORKERS"),
        ("WEFT_BANANA", "3", "no setting WEFT_BANANA.*There are: WEFT_BACKEND"),
        ("WEFT_", "", "no setting WEFT_"),
    ],
)
def test_mistakes_in_the_environment_name_the_variable(load, name, value, said):
    with pytest.raises(UsageError, match=f"(?s){said}"):
        load(environ={name: value})


def test_variables_of_others_are_left_alone(load):
    assert load(environ={"WEFT_SEED": "1", "WEFTWORKERS": "2", "HOME": "/"}) == Settings()


def test_mistakes_in_flags_name_the_flag(load):
    with pytest.raises(UsageError, match="--memory is 'x'"):
        load({"memory": "x"})


@pytest.mark.parametrize(
    ("environ", "color", "place"),
    [
        ({"NO_COLOR": "1"}, "never", "NO_COLOR"),
        ({"NO_COLOR": ""}, "auto", ""),
        ({"FORCE_COLOR": "1"}, "always", "FORCE_COLOR"),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, "never", "NO_COLOR"),
        ({"NO_COLOR": "1", "WEFT_COLOR": "always"}, "always", "WEFT_COLOR"),
    ],
)
def test_the_common_variables_for_colour(load, environ, color, place):
    settings = load(environ=environ)
    assert (settings.color, settings.origin("color").place) == (color, place)


def test_the_users_file():
    assert str(user_config_file({"XDG_CONFIG_HOME": "/c"})) == "/c/weft/config.toml"
    assert user_config_file({}).parts[-3:] == (".config", "weft", "config.toml")


def test_tables_of_others_are_left_alone(load):
    assert load(project_text='workers = 3\n[fs]\ndata = "./data"').workers == 3
