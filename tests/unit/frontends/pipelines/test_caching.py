"""What the result of a step depends on."""

import json
from pathlib import Path

import pytest

from weft.frontends.pipelines.caching import CachePlace, FoundScripts, describe, mentioned_files, recipe_of
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.notices import notes
from weft.frontends.pipelines.overrides import make_pipeline
from weft.frontends.pipelines.paths import POST_PROCESS, mount_path
from weft.frontends.pipelines.resolve import resolve, resolve_nodes
from weft.frontends.pipelines.resolved import ResolvedStep, RunIdentity
from weft.store.results import Recipe

PLACE = CachePlace("run-000001")


def recipe(place: CachePlace | None = PLACE, run: str = "run-000001", user: str = "me", **step) -> Recipe | None:
    first = {"command": "true", "artifacts": {"output": ["out"]}}
    given = {
        "command": "train {{epoch}} {{in}} {{model}}",
        "parameters": {"epoch": 15},
        "env": {"FOO": "1", "PF_JOB_QUEUE_NAME": "q"},
        "docker_env": "image:1",
        "deps": "first",
        "artifacts": {"input": {"in": "{{first.out}}"}, "output": ["model"]},
        **step,
    }
    text = json.dumps({"name": "p", "cache": {"enable": True}, "entry_points": {"first": first, "s": given}})
    pipeline = parse_pipeline(text, "run.yaml")
    steps = {one.name: one for one in resolve(pipeline, run_id=run, user=user, root="/data")}
    return describe(pipeline, steps["s"], place)


def static(**step) -> str:
    found = recipe(**step)
    assert found is not None
    return found.static_key


@pytest.mark.parametrize(
    ("command", "cache", "said"),
    [
        ("xargs cat < list.txt", "{enable: true}", ["data/a"]),
        ("while read l; do cat data/$l; done < names.txt", "{enable: true}", ["data/a"]),
        ('while read l; do cat "data${l}"; done < slashes.txt', "{enable: true}", ["data/a"]),
        ("xargs -I{} cat data/{} < names.txt", "{enable: true}", ["data/a"]),
        ("while read f; do cat $f; done < list.txt", "{enable: true}", ["data/a"]),
        ("cat list.txt | xargs cat", "{enable: true}", ["data/a"]),
        ("cat -s list.txt | sort | while read f; do cat $f; done", "{enable: true}", ["data/a"]),
        ("xargs -a list.txt cat", "{enable: true}", ["data/a"]),
        ("cat $(cat list.txt)", "{enable: true}", ["data/a"]),
        ("read x < list.txt; cat $x", "{enable: true}", ["data/a"]),
        ("cat list.txt", "{enable: true}", []),
        ("awk ''BEGIN {while ((getline l < \"data/a\") > 0) print l > \"data/made\"}''", "{enable: true}", ["data/a"]),
        ("awk ''BEGIN {\"cat data/a\" | getline; print}''", "{enable: true}", ["data/a"]),
        ("awk -f read.awk", "{enable: true}", ["data/a"]),
        ("awk ''{print \"data/a\"}'' data/a", "{enable: true}", []),
        ("cat $(printf data/%s a)", "{enable: true}", ["data/a", "data/made"]),
        ("cat $(printf ''data/%.1s'' a); touch data/made", "{enable: true}", ["data/a", "data/made"]),
        ("printf ''%s %d\\\\n'' a 1; printf %.2f 1.5", "{enable: true}", []),
        ("for i in $(seq 2); do cat data/$i; done", "{enable: true}", ["data/a", "data/made"]),
        ("seq 2 | while read i; do tool --in=data/${i}; done", "{enable: true}", ["data/a", "data/made"]),
        ("cat data/$(date +%a); date > data/made", "{enable: true}", ["data/a"]),
        ("cat $HERE/a $i; echo data/$i; date > data/$i; touch data/$i", "{enable: true}", []),
        ("tool --out=data/$i -o data/$i; cp x data/$i", "{enable: true}", []),
        ("python3 -c \"print(open(''data/a'').read())\"", "{enable: true}", ["data/a"]),
        ("python3 read.py", "{enable: true}", ["data/a"]),
        ("python3 read.py data/a", "{enable: true}", []),
        ("python3 read.py data", "{enable: true}", []),
        ("python3 read.py", "{enable: true, fs_scope: [{name: main, path: data}]}", []),
        ("python3 read.py", "{enable: false}", []),
    ],
)
def test_paths_that_scripts_name_are_told_unless_they_count(tmp_path, command, cache, said):
    (tmp_path / "data").mkdir()
    for name in ("data/a", "data/made", "dat"):
        (tmp_path / name).touch()
    (tmp_path / "list.txt").write_text("data/a gone\n")
    (tmp_path / "read.awk").write_text('BEGIN {getline l < "data/a"}')
    (tmp_path / "names.txt").write_text("a gone\na/a\n")
    (tmp_path / "slashes.txt").write_text("/a\n")
    (tmp_path / "read.py").write_text("open('data/a'); open('data/made', 'w'); {}['dat']; open('gone/b')\n")
    text = f"name: p\nentry_points:\n  s: {{command: '{command}', cache: {cache}}}\n"
    (node,) = resolve_nodes(parse_pipeline(text, "run.yaml"), RunIdentity("run-000001", "me", str(tmp_path)))
    assert isinstance(node, ResolvedStep)
    assert mentioned_files(node, "") == said


def test_paths_that_the_code_of_a_python_step_names_are_told(tmp_path):
    for name, text in {"data/a": "", "data/b": "", "lib/c.json": "", "tool.sh": "", "other": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "lib/conf.py").write_text(
        "import os\nHERE = os.path.dirname(__file__)\nCONF = open(os.path.join(HERE, 'c.json')).read()\nX = 'data/b'\n"
    )
    (tmp_path / "steps.py").write_text(
        "from lib import conf\nFOLDER = 'data'\n"
        "def fit(out):\n    out.write_text(open(f'{FOLDER}/a').read() + conf.CONF); 'tool.sh'; open('other', 'w')\n"
        "def rest(out):\n    open(conf.X)\n"
    )
    text = (
        "name: p\nentry_points:\n  s: {cache: {enable: true}, artifacts: {output: [out]}, "
        "x-weft: {kind: python, with: {function: 'steps:fit'}}}\n"
    )
    (node,) = resolve_nodes(parse_pipeline(text, "run.yaml"), RunIdentity("run-000001", "me", str(tmp_path)))
    assert isinstance(node, ResolvedStep)
    assert mentioned_files(node, str(tmp_path)) == ["data/a", "lib/c.json"]


def test_a_file_outside_that_a_script_names_is_told_with_what_to_do(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "x.csv").touch()
    (project / "read.py").write_text(f"open('../x.csv'); open('{tmp_path}/x.csv'); open('/etc/passwd')\n")
    text = "name: p\nentry_points:\n  s: {command: python3 read.py, cache: {enable: true}}\n"
    nodes = resolve_nodes(parse_pipeline(text, "run.yaml"), RunIdentity("run-000001", "me", str(project)))
    (said,) = notes(nodes, str(project))
    assert said.startswith(f"code of s names {tmp_path}/x.csv outside of the project")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("cat in >> in", ["s writes in, which it reads"]),
        ("sort in | tee -a in", ["s writes in, which it reads"]),
        ("echo a >> in; wc -l in", ["s writes in, which it reads"]),
        ("echo a >> data.csv", ["s adds to data.csv, which is no output of it"]),
        ("echo in >> in", ["s adds to in, which is no output of it"]),
        ("rm -f data.csv; echo a >> data.csv", []),
        ("echo a >> ../data.csv", []),
        ("echo a > data.csv; cat data.csv", []),
        ("echo a >> {{out}}; echo a >> train.log; cat in 2>> errors >> /dev/null", []),
    ],
)
def test_a_file_that_a_step_reads_or_adds_to_and_writes_is_told(tmp_path, command, said):
    (tmp_path / "in").touch()
    text = f"name: p\nentry_points:\n  s: {{command: '{command}', cache: CACHE, artifacts: {{output: [out]}}}}\n"
    who = RunIdentity("run-000001", "me", str(tmp_path))
    nodes = resolve_nodes(parse_pipeline(text.replace("CACHE", "{enable: true}"), "run.yaml"), who)
    for trace in (False, True):
        told = notes(nodes, "", trace=trace)
        assert [line[: len(start)] for line, start in zip(told, said, strict=True)] == said
    assert notes(resolve_nodes(parse_pipeline(text.replace("CACHE", "{enable: false}"), "run.yaml"), who), "") == []


def test_a_step_of_post_process_has_no_cache_to_warn_of(tmp_path):
    text = (
        "name: p\ncache: {enable: true}\nentry_points: {a: {command: 'true'}}\n"
        "post_process: {tell: {command: echo x >> history}}\n"
    )
    who = RunIdentity("run-000001", "me", str(tmp_path))
    (tell,) = resolve_nodes(parse_pipeline(text, "run.yaml"), who, POST_PROCESS)
    assert isinstance(tell, ResolvedStep)
    assert not tell.cache.enable
    assert notes([tell], "") == []


def test_a_command_is_read_once_for_its_recipe_and_its_notices(tmp_path):
    (tmp_path / "in").touch()
    text = "name: p\nentry_points:\n  s: {command: cat in >> in, cache: {enable: true}}\n"
    pipeline, scripts = parse_pipeline(text, "run.yaml"), FoundScripts()
    (step,) = resolve(pipeline, run_id="run-000001", user="me", root=str(tmp_path))
    assert describe(pipeline, step, PLACE, scripts=scripts).scopes == [["in", str(tmp_path / "in")]]
    (tmp_path / "in").unlink()
    assert [note.partition(",")[0] for note in notes([step], "", scripts=scripts)] == ["s writes in"]
    assert notes([step], "") == [
        "s adds to in, which is no output of it: a result from the cache adds nothing. "
        "To add each time, write in the step  cache: {enable: false}"
    ]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo $SCALE", ["s uses SCALE of the machine"]),
        ("echo ${SCALE:-1} $OTHER", ["s uses OTHER, SCALE of the machine"]),
        ("SCALE=3; echo $SCALE $DATA $NOT_SET $HOME $PF_RUN_ID", []),
        ("echo $GIVEN", []),
    ],
)
def test_a_variable_of_the_machine_that_a_cached_command_names_is_told(tmp_path, monkeypatch, command, said):
    for name, value in {"SCALE": "2", "OTHER": "a", "GIVEN": "3", "DATA": "data/x.csv", "PF_RUN_ID": "7"}.items():
        monkeypatch.setenv(name, value)
    text = f"name: p\nentry_points:\n  s: {{command: '{command}', env: {{GIVEN: '1'}}, cache: {{enable: true}}}}\n"
    nodes = resolve_nodes(parse_pipeline(text, "run.yaml"), RunIdentity("run-000001", "me", str(tmp_path)))
    told = notes(nodes, "", trace=True)
    assert [line[: len(start)] for line, start in zip(told, said, strict=True)] == said


def test_nothing_of_a_run_is_part_of_the_key():
    assert static(run="run-000002") == static()
    assert recipe().static["command"] == "train 15 {{in}} {{model}}"


def test_a_step_that_asks_for_nothing_has_none():
    assert recipe(place=None) is None
    assert recipe(cache={"enable": False}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"command": "train {{epoch}}  {{in}} {{model}}"},
        {"parameters": {"epoch": 16}},
        {"parameters": {"epoch": "15"}},
        {"parameters": {"epoch": 15, "more": 1}},
        {"env": {"FOO": "2", "PF_JOB_QUEUE_NAME": "q"}},
        {"env": {"FOO": "1", "BAR": "1", "PF_JOB_QUEUE_NAME": "q"}},
        {"docker_env": "image:2"},
        {"user": "you"},
        {"artifacts": {"input": {"in": "{{first.out}}"}, "output": ["model", "log"]}},
        {"cache": {"enable": True, "mode": "paddleflow"}},
    ],
)
def test_what_a_step_is_given_is(change):
    assert static(**change) != static()


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"FOO": "1", "PF_JOB_QUEUE_NAME": "another", "PF_JOB_PRIORITY": "HIGH", "PF_JOB_FLAVOUR": "big"}},
        {"cache": {"enable": True, "max_expired_time": 5}},
        {"x-weft": {"timeout_s": 5}},
    ],
)
def test_where_and_how_long_it_runs_is_not(change):
    assert static(**change) == static()


def test_a_file_of_a_mounted_file_system_is_told_with_its_own_scope(tmp_path):
    project, source = tmp_path / "project", tmp_path / "source"
    for folder in (project, source / "deep"):
        folder.mkdir(parents=True)
    (source / "deep" / "x.csv").touch()
    (project / "read.py").write_text('open("/mnt/d/x.csv")')
    text = """
name: p
fs_options: {extra_fs: [{name: d, mount_path: /mnt/d, sub_path: deep}]}
entry_points:
  s: {command: python3 read.py, cache: {enable: true}}
"""
    who = RunIdentity("run-000001", "me", str(project), file_systems={"d": str(source)})
    (note,) = notes(resolve_nodes(parse_pipeline(text, "run.yaml"), who), str(project))
    scope = "fs_scope: [{name: d, path: deep/x.csv}]"
    assert note.endswith(scope)
    told = text.replace("enable: true", f"enable: true, {scope}")
    assert notes(resolve_nodes(parse_pipeline(told, "run.yaml"), who), str(project)) == []


def mounted(main: str, main_fs: str = "", command: str = "x") -> str:
    text = f"name: p\ncache: {{enable: true}}\nentry_points: {{s: {{command: {command}}}}}\n{main}"
    pipeline = make_pipeline(text, "run.yaml", {}, None, {}, main_fs)
    (step,) = resolve_nodes(pipeline, RunIdentity("run-000001", "me", "/data", {}))
    assert isinstance(step, ResolvedStep)
    found = describe(pipeline, step, PLACE)
    assert found is not None
    return found.static_key


def test_all_of_the_main_file_system_is_what_a_file_that_names_none_has():
    assert mounted("", main_fs="ppl") == mounted("")
    assert mounted("fs_options: {main_fs: {name: ppl}}") == mounted("")


@pytest.mark.parametrize("option", ["sub_path: deep", "mount_path: /deep"])
def test_another_part_of_it_or_place_is_not(option):
    assert mounted(f"fs_options: {{main_fs: {{name: ppl, {option}}}}}") != mounted("")


def test_the_place_at_which_it_lies_as_well_counts_for_a_command_that_names_it():
    command = f"cat {mount_path('me', 'ppl')}/x"
    assert mounted("", main_fs="ppl", command=command) != mounted("", command=command)


def test_c13_an_image_counts_by_its_content_where_that_is_known():
    def of(digest: str) -> str:
        return static(place=CachePlace("run-000001", {"image:1": digest}))

    assert of("sha256:1") == of("sha256:1")
    assert of("sha256:1") != of("sha256:2")
    assert of("image:1") == static(), "where it is not known the name counts"


def test_scopes_and_outputs_have_their_places():
    scope = [{"name": "main", "path": "a,b/c"}, {"name": "main", "path": "/"}]
    found = recipe(cache={"enable": True, "fs_scope": scope, "max_expired_time": 60})
    assert [name for name, _ in found.scopes] == ["main:a", "main:b/c", "main:/"]
    assert [path for _, path in found.scopes] == ["/data/a", "/data/b/c", "/data"]
    assert found.outputs["model"].startswith("/data/.pipeline/run-000001/p/s-0-")
    assert found.inputs["in"][0].startswith("/data/.pipeline/run-000001/p/first-0-")
    assert found.expires_s == 60.0


def test_scopes_are_paths_in_the_file_system_whatever_of_it_is_mounted():
    text = """
name: p
entry_points:
  s:
    command: x
    cache: {enable: true, fs_scope: [{name: main, path: work/x}, {name: own, path: /deep}]}
    extra_fs: [{name: own, mount_path: /own, sub_path: deep}]
fs_options: {main_fs: {name: main, sub_path: work}}
"""
    pipeline = parse_pipeline(text, "run.yaml")
    (step,) = resolve_nodes(pipeline, RunIdentity("run-000001", "me", "/data", {"own": "/disk"}))
    assert isinstance(step, ResolvedStep)
    found = describe(pipeline, step, PLACE)
    assert found is not None
    assert [path for _, path in found.scopes] == ["/data/work/x", "/disk/deep"]


EXTRA = """
name: p
cache: {enable: true}
entry_points:
  s: {command: x, extra_fs: [{name: own, mount_path: /own}]}
"""


def key_with(root: Path, place: str) -> str:
    """Return the key of a step in a folder that has another file system at a place."""
    pipeline = parse_pipeline(EXTRA, "run.yaml")
    (step,) = resolve_nodes(pipeline, RunIdentity("run-000001", "me", str(root), {"own": place}))
    assert isinstance(step, ResolvedStep)
    found = describe(pipeline, step, PLACE)
    assert found is not None
    return found.static_key


def test_where_another_file_system_is_counts_from_the_folder_of_the_step_in_one_project(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for project in (one, two):
        (project / "store").mkdir(parents=True)
        (project / "weft.toml").touch()
    key = key_with(one / "store", str(one / "data"))
    assert key_with(one / "store", str(one / "other")) != key
    assert key_with(two / "store", str(two / "data")) == key, "the project was moved"
    assert key_with(two / "store", str(one / "data")) != key


def test_a_program_without_one_has_none():
    assert recipe_of({}, 0) is None
