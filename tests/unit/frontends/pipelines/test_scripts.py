"""Which files a command runs, as far as its text tells."""

import json
import os
from pathlib import Path

import pytest

from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.code.path_texts import PathText, paths_named
from weft.frontends.pipelines.resolve import resolve_nodes
from weft.frontends.pipelines.resolved import ResolvedStep, RunIdentity
from weft.frontends.pipelines.scripts import Scripts, scripts_of, uncovered

FILES = {
    "train.py": "import lib.deep\nimport json, numpy\nif __name__ == '__main__':\n    import late\n",
    "late.py": "",
    "other.py": "",
    "lib/__init__.py": "",
    "lib/deep.py": "from lib import deeper\n",
    "lib/deeper.py": "",
    "lib/__main__.py": "from . import deeper\n",
    "broken.py": "def (:\n",
    "run.sh": "set -e\n# python3 other.py\npython3 lib/deep.py\n",
    "bin/tool": "#!/usr/bin/env python3\nimport train\n",
    "bin/train.py": "",
    "sub/x.py": "",
    "a b.py": "",
    "x.pl": "",
    "p.awk": "",
    "use.py": "import there\n",
    "use.sh": "python3 use.py\n",
    "shared/there.py": "",
    "plain": "#!/bin/sh\n. ./run.sh\n",
}


def scripts(folder: Path, command: str, **step: object) -> Scripts:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    lines = [f"      {line}" for line in command.splitlines()]
    text = "\n".join(
        ["name: p", "entry_points:", "  s:", "    command: |", *lines, *(f"    {k}: {v}" for k, v in step.items())]
    )
    (node,) = resolve_nodes(parse_pipeline(text, "run.yaml"), RunIdentity("run-000001", "me", str(folder)))
    assert isinstance(node, ResolvedStep)
    return scripts_of(node)


TRAIN = {"train.py", "late.py", "lib/__init__.py", "lib/deep.py", "lib/deeper.py"}
USE = {"use.py", "shared/there.py"}
RUN = {"run.sh", "lib/deep.py"}


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python train.py", TRAIN),
        ("cat $PF_WORK_DIR/p.awk ${PF_WORK_DIR}/x.pl > $PF_STEP_NAME.txt", {"p.awk", "x.pl"}),
        ("cd lib && cat $PF_WORK_DIR/p.awk", {"p.awk"}),
        ("pushd lib >/dev/null; cat deep.py; popd; cat p.awk", {"lib/deep.py", "p.awk"}),
        ("pushd lib; cat deep.py; popd; popd; cat late.py", {"lib/deep.py", "late.py"}),
        ("for x in p y; do cat $x.awk; done", {"p.awk"}),
        (
            "for x in p.awk x.pl\ndo\n  for y in late other; do python $y.py; cat $x; done\ndone",
            {"p.awk", "x.pl", "late.py", "other.py"},
        ),
        ('bash -c "cat {p,late}.{awk,py} data/{1..3}.csv"', {"p.awk", "late.py"}),
        ("cat {1..999999999} {3..1}.pl x.pl", {"x.pl"}),
        ("cat {p.awk,x.pl} | awk '{print $1,$2}' {use,late}.py", {"p.awk", "x.pl", "use.py", "late.py"}),
        ("mv $(dirname $A)/f.txt $(cat x.pl)/$(cat late.py); rm `cat p.awk`", {"p.awk", "x.pl", "late.py"}),
        ("tool --files=p.awk,x.pl late.py,other.py", {"p.awk", "x.pl", "late.py", "other.py"}),
        ("cat > {{PF_STEP_NAME}} <<X\na $(cat p.awk) b `cat x.pl` $(sh run.sh)\nX", {"p.awk", "x.pl", *RUN}),
        ("cat <<'X'\n$(cat p.awk)\nX", set()),
        ("python3.11 -u -W ignore train.py --epochs 3 other.py", {*TRAIN, "other.py"}),
        ("/opt/conda/bin/python ./train.py", TRAIN),
        ("FOO=1 env BAR=2 nohup timeout 5 python train.py > log.txt 2>&1 &", TRAIN),
        ("torchrun --nproc 2 train.py", TRAIN),
        ("python -m lib", {"lib/__main__.py", "lib/__init__.py", "lib/deeper.py"}),
        ("python -m lib.deep", {"lib/deep.py", "lib/__init__.py", "lib/deeper.py"}),
        ("python -m json.tool x", set()),
        ("python -c 'import late; late.run()'", {"late.py"}),
        ("python - <<'EOF'\nimport late\nEOF\npython other.py", {"late.py", "other.py"}),
        ("python < other.py", {"other.py"}),
        ("python broken.py", {"broken.py"}),
        ("python 'a b.py'", {"a b.py"}),
        ("python a\\ b.py", {"a b.py"}),
        ('python "other.py"', {"other.py"}),
        ("sh ./run.sh", RUN),
        ("bash -e run.sh | tee log", RUN),
        (". ./run.sh", RUN),
        ("./plain", {"plain", *RUN}),
        ("sh -c 'sh run.sh'", RUN),
        ("sh -ec 'sh run.sh'", RUN),
        ("x=$(sh run.sh) && python other.py", {*RUN, "other.py"}),
        ("cat ${FILE:-p.awk} ${OTHER-x.pl}", {"p.awk", "x.pl"}),
        ("FILE=late.py; cat ${FILE:-p.awk}", {"late.py"}),
        ('FILE=${FILE:-p.awk}; cat "$FILE"', {"p.awk"}),
        ('FILE="${GIVEN:-p.awk}"\nN="${N:-x}"; cat "$FILE" $N.pl', {"p.awk", "x.pl"}),
        (': "${FILE:=p.awk}" ${N:=x}; cat $FILE $N.pl', {"p.awk", "x.pl"}),
        ("FILE=${FILE:-p.awk}; date > $FILE", set()),
        ("FILE=${FILE:-p.awk}; date | tee $FILE; cat $FILE", set()),
        ("FILE=${FILE:-p.awk}; date | tee -a $FILE; cat $FILE", {"p.awk"}),
        ("FILE=p.awk; cat $FILE; date > $FILE", {"p.awk"}),
        ("FILE=p.awk tool; date > p.awk", {"p.awk"}),
        ("exec 3< p.awk; date > p.awk", {"p.awk"}),
        ('LOG=${LOG:-p.awk} OUT_FILE=x.pl; python other.py --to "$OUT_FILE"', {"other.py", "x.pl"}),
        ('LOG=${LOG:-p.awk}; run() { "$@" 2>> $LOG; }; run python other.py', {"other.py"}),
        ("export OUT=p.awk RESULT_PATH=x.pl; python other.py", {"other.py"}),
        ("FILE=${FILE:-p.awk}; FILE=$(tool); cat $FILE", set()),
        ("sh -c 'F=${1:-p.awk}; cat \"$F\" ${2:-x.pl}'", {"p.awk", "x.pl"}),
        ("exec 3< p.awk; while read line <&3; do echo $line; done 4<x.pl", {"p.awk", "x.pl"}),
        ("exec 3<> p.awk; date 2> x.pl", set()),
        ("python late.py data.path=p.awk +more.path=x.pl", {"late.py", "p.awk", "x.pl"}),
        ("curl -d @p.awk -F file=@x.pl --data=@late.py x", {"p.awk", "x.pl", "late.py"}),
        ("trap 'cat p.awk' EXIT; trap - INT", {"p.awk"}),
        ("if true; then python other.py; fi", {"other.py"}),
        ("for i in 1 2; do python other.py $i; done", {"other.py"}),
        ("cd sub && python x.py", {"sub/x.py"}),
        ("cd sub\npython x.py", {"sub/x.py"}),
        ("bin/tool", {"bin/tool", "bin/train.py"}),
        ("perl x.pl other.py", {"x.pl", "other.py"}),
        ("perl -e 'print 1' x.pl", {"x.pl"}),
        ("echo done > other.py", set()),
        ("echo x.pl > x.pl; wc -l x.pl && cat late.py > other.py", {"late.py"}),
        ("cat x.pl >> x.pl", {"x.pl"}),
        ("sort x.pl late.py > other.py; cat other.py >> x.pl", {"x.pl", "late.py"}),
        ("echo x.pl >> x.pl; wc -l x.pl", {"x.pl"}),
        ("rm -f x.pl; echo a >> x.pl; wc -l x.pl", set()),
        ("rm -rf lib; mkdir lib; echo a >> lib/deep.py; cat lib/deep.py", set()),
        ("[ -f x.pl ] || date > x.pl; cat x.pl", {"x.pl"}),
        ("while read a; do echo $a; done < x.pl >> x.pl", {"x.pl"}),
        ("sort x.pl | tee -a x.pl; date | tee late.py; cat late.py", {"x.pl"}),
        ("echo train # python other.py", set()),
        ("true", set()),
        ("test -f gone.py || true", set()),
        ("/usr/bin/true", set()),
        ("PYTHONPATH=shared python3 use.py", USE),
        ('PYTHONPATH="$PWD/shared:$PYTHONPATH" python3 use.py', USE),
        ("export PYTHONPATH=shared; cd sub; python3 ../use.py", USE),
        ("PYTHONPATH=shared; python3 -m there", {"shared/there.py"}),
        ("PYTHONPATH=shared sh use.sh", {"use.sh", *USE}),
        ("PYTHONPATH=shared true; python3 use.py", {"use.py"}),
        ("PATH=$PWD/bin:$PATH tool", {"bin/tool", "bin/train.py"}),
        ("export PATH=bin:${PATH}\nls; tool", {"bin/tool", "bin/train.py"}),
        ("PATH=$ELSEWHERE:$PATH ls", set()),
        ("/usr/bin/env python3 train.py", TRAIN),
        ("/usr/bin/timeout 5 python3 train.py", TRAIN),
        ("timeout -s KILL 5 python3 -m lib.deep", {"lib/deep.py", "lib/__init__.py", "lib/deeper.py"}),
        ("python3 -m cProfile train.py", TRAIN),
        ("python3 -m trace -m lib.deep", {"lib/deep.py", "lib/__init__.py", "lib/deeper.py"}),
        ("awk -f p.awk plain", {"p.awk", "plain", *RUN}),
        ("sed -fp.awk --expression=1", {"p.awk"}),
        ("duckdb < other.py", {"other.py"}),
        ('printf "%s" x.pl', {"x.pl"}),
        ("sh <<< 'python3 other.py'", {"other.py"}),
        ('echo "$(python3 other.py)"', {"other.py"}),
        ("eval python3 other.py", {"other.py"}),
        (
            "python3 $PWD/other.py; python3 `pwd`/late.py; python3 $(pwd)/bin/train.py",
            {"other.py", "late.py", "bin/train.py"},
        ),
        ("find late.py -exec python3 other.py \\;", {"late.py", "other.py"}),
        ('[ "$A" != 3 ] && echo no', set()),
        ("true || [ -e other.py ]", set()),
        ('if [ "$A" = 1 ]; then python3 other.py; fi', {"other.py"}),
        ("[[ -n $A && $B == 1 ]] || [[ $C =~ (x|y) ]]; echo $(( $A * 2 ))", set()),
        ("sh run.sh | tee plain", RUN),
        ('case "$1" in a) python3 other.py;; *) x=$(sh run.sh);; esac', {*RUN, "other.py"}),
        ("python3 other.py -o late.py; cp x.pl late.py; rm -f plain", {"other.py", "x.pl"}),
        ("pip install python numpy", set()),
        ("grep python $A", set()),
    ],
)
def test_what_a_command_runs_is_found(tmp_path, command, files):
    found = scripts(tmp_path, command)
    assert {os.path.relpath(file, tmp_path) for file in found.files} == files
    assert found.unknown == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python $SCRIPT", "python $SCRIPT"),
        ("cd /; python 'gone.py' x", "python 'gone.py' x"),
        ('sh "$HERE/run.sh"', 'sh "$HERE/run.sh"'),
        ('sh -c "$TODO"', 'sh -c "$TODO"'),
        ("$TOOL --fast", "$TOOL --fast"),
        ("./gone", "./gone"),
        ("python *.py", "python *.py"),
        ("python -m no_such_module", "python -m no_such_module"),
        ("make all", "make all"),
        ("PATH=$ELSEWHERE:$PATH tool", "tool"),
        ("PYTHONPATH=$ELSEWHERE python3 other.py", "Python, with a PYTHONPATH that is known only when it runs"),
        ("printf ./run.sh | sh", "sh"),
        ("$(which python3)/x other.py", "$(which python3)/x other.py"),
        ("ls *.py | (xargs python3 -u)", "python3 -u"),
        ('sh <<< "$TODO"', "sh"),
        ('awk -f "$P" x.pl', 'awk -f "$P" x.pl'),
        ('eval "$TODO"', 'eval "$TODO"'),
        ("torchrun --no-python python3 $SCRIPT", "python3 $SCRIPT"),
        ("python {{PF_LOOP_ARGUMENT}}", "python {{PF_LOOP_ARGUMENT}}"),
    ],
)
def test_what_is_known_only_later_is_told(tmp_path, command, said):
    assert scripts(tmp_path, command, loop_argument="[a.py]").unknown == [said]


def test_a_program_in_a_loop_over_words_is_known(tmp_path):
    found = scripts(tmp_path, "for x in late other; do python $x.py $MORE; done; for z in $(ls); do python $z; done")
    assert found.unknown == ["python $z"]


@pytest.mark.parametrize(
    ("env", "command", "files"),
    [
        ("{F: p.awk}", "cat $F", {"p.awk"}),
        ("{F: p.awk x.pl}", "cat $F", {"p.awk", "x.pl"}),
        ("{S: train.py}", "python $S", TRAIN),
        ("{S: train.py}", "sh -c 'python ${S}'", TRAIN),
        ("{F: p.awk}", "env", {"p.awk"}),
        ("{F: p.awk}", "F=x.pl; cat $F > p.awk", {"x.pl"}),
        ("{F: p.awk}", "date > $F; cat $F", set()),
        ("{LOG: p.awk, OUT_FILE: x.pl}", "true", set()),
        ("{DIR: sub}", "true", {"sub"}),
        ("{FILES: 'p.awk:x.pl'}", "true", {"p.awk", "x.pl"}),
        ("{F: x.pl}", "F=${F:-p.awk}; cat $F", {"x.pl"}),
        ("{ROOT: ., OUT_DIR: sub}", "true", set()),
    ],
)
def test_files_that_the_environment_of_a_step_names_count(tmp_path, env, command, files):
    found = scripts(tmp_path, command, env=env)
    assert {os.path.relpath(file, tmp_path) for file in found.files} == files
    assert found.unknown == []


def test_files_outside_of_the_project_count_where_a_command_names_them(tmp_path):
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    for name in "abcde":
        (outside / name).touch()
    command = f"cat ../outside/a --in={outside}/b {outside}/[c] $D /etc/passwd; date > {outside}/e; tool ../outside"
    env = f"{{D: {outside}/d}}"
    found = scripts(project, command, env=env)
    assert sorted(found.files) == [f"{outside}/{name}" for name in "abcd"]
    assert scripts(project, command, env=env, docker_env="image:1").files == {}
    items = scripts(project, "cat {{PF_LOOP_ARGUMENT}}", loop_argument="[a]").named
    assert items is not None
    assert items.of(f"{outside}/a") == [f"{outside}/a"]
    assert items.of(str(outside)) == []


@pytest.mark.parametrize(
    ("command", "item", "files"),
    [
        ("cat {{PF_LOOP_ARGUMENT}}", "plain", {"plain"}),
        ("cat {{PF_LOOP_ARGUMENT}}", "plain x.pl", {"plain", "x.pl"}),
        ("cat {{PF_LOOP_ARGUMENT}}", "sub/*.py", {"sub/x.py"}),
        ("cat {{PF_LOOP_ARGUMENT}}", "gone", set()),
        ("cat {{PF_LOOP_ARGUMENT}}", ".", set()),
        ("cat {{PF_LOOP_ARGUMENT}}", "/etc/passwd", set()),
        ("cd sub && cat --in=$PF_LOOP_ARGUMENT.py", "x", {"sub/x.py"}),
        ("sh -c 'tool {{PF_LOOP_ARGUMENT}}'", "sub", {"sub"}),
        ("tool --out-dir {{PF_LOOP_ARGUMENT}}", "sub", set()),
        ("date > {{PF_LOOP_ARGUMENT}}; cat {{PF_LOOP_ARGUMENT}}", "plain", set()),
        ("cat {{PF_LOOP_ARGUMENT}} >> {{PF_LOOP_ARGUMENT}}", "plain", {"plain"}),
    ],
)
def test_files_that_an_item_names_count_for_it(tmp_path, command, item, files):
    found = scripts(tmp_path, command, loop_argument="[a]")
    by_item = [] if found.named is None else found.named.of(item)
    assert {os.path.relpath(file, tmp_path) for file in by_item} == files
    assert found.unknown == []


@pytest.mark.parametrize(
    ("env", "command", "files"),
    [("{PYTHONPATH: shared}", "python3 use.py", USE), ("{PATH: bin}", "tool", {"bin/tool", "bin/train.py"})],
)
def test_folders_in_the_environment_of_a_step_are_searched(tmp_path, env, command, files):
    found = scripts(tmp_path, command, env=env)
    assert {os.path.relpath(file, tmp_path) for file in found.files} == files


def test_files_that_variables_of_this_process_name_count(tmp_path, monkeypatch):
    monkeypatch.setenv("DATA", "sub")
    monkeypatch.setenv("SCRIPT", "train.py")
    monkeypatch.delenv("NOWHERE", raising=False)
    (tmp_path / "env.sh").write_text("export LATER=lib/deep OTHER=$(date)\n")
    for command, files, unknown in (
        ("cat $DATA/x.py", {"sub/x.py"}, []),
        ('cat "${DATA}/x.py"', {"sub/x.py"}, []),
        ("DATA=lib; cat $DATA/deep.py", {"lib", "lib/deep.py"}, []),
        ("python $SCRIPT", TRAIN, []),
        (". ./env.sh; cat $LATER.py", {"env.sh", "lib/deep.py"}, []),
        ("export $(cat env.sh | xargs); cat $LATER.py", {"env.sh", "lib/deep.py"}, []),
        ("cat $NOWHERE/x.py", set(), ["cat $NOWHERE/x.py"]),
        ("tool --in=${NOWHERE}/x.py", set(), ["tool --in=${NOWHERE}/x.py"]),
        ("D=$(mktemp -d); . ./env.sh; date > $NOWHERE/a; cat $D/x.py $OTHER/y $TMPDIR/z", {"env.sh"}, []),
    ):
        found = scripts(tmp_path, command)
        assert ({os.path.relpath(file, tmp_path) for file in found.files}, found.unknown) == (files, unknown)
    assert scripts(tmp_path, "cat $DATA/x.py $NOWHERE/y", docker_env="image:1") == Scripts()
    assert scripts(tmp_path, "cat $DATA/x.py", env="{DATA: lib}").files == {f"{tmp_path}/lib": None}


def test_an_inherited_pythonpath_counts_inside_of_the_project(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"/elsewhere:{tmp_path}/shared")
    found = scripts(tmp_path, "python3 use.py").files
    assert {os.path.relpath(file, tmp_path) for file in found} == USE


def test_a_script_of_the_image_counts_with_the_image(tmp_path):
    assert scripts(tmp_path, "python /app/train.py", docker_env="image:1") == Scripts()


def test_files_in_a_scope_are_left_out(tmp_path):
    files = scripts(tmp_path, "python train.py").files
    assert [name for name, _ in uncovered(files, [f"{tmp_path}/lib", f"{tmp_path}/train.py"], str(tmp_path))] == [
        "late.py"
    ]
    assert uncovered(files, [f"{tmp_path}/"], str(tmp_path)) == []


@pytest.mark.parametrize(
    ("command", "files", "mentioned"),
    [
        ("cat /mnt/d/sub/x", {"sub/x"}, set()),
        ("cd /mnt/d && cat sub/*", {"sub/x", "sub/y"}, set()),
        ("cd /mnt/d/sub; cat ./x ../top", {"sub/x", "top"}, set()),
        ("(cd /mnt/d && sh run.sh)", {"run.sh", "sub/y"}, set()),
        ("cp -r /mnt/d here", {""}, set()),
        ("tool --data=/mnt/d/sub --out-dir=/mnt/d", {"sub"}, set()),
        ("date > /mnt/d/top; cat /mnt/d/top", set(), set()),
        ("cat /mnt/data/x /mnt", set(), set()),
        ("""python3 -c 'open("/mnt/d/sub/x")'""", set(), {"sub/x"}),
        ("PYTHONPATH=/mnt/d python3 -c 'import mod'", {"mod.py"}, set()),
        ("""python3 -c 'import sys; sys.path.append("/mnt/d"); import mod'""", {"mod.py"}, set()),
        ("PATH=/mnt/d:$PATH run.sh", {"run.sh"}, set()),
    ],
)
def test_files_of_a_mounted_file_system_count_by_their_mount_path(tmp_path, command, files, mentioned):
    project, source = tmp_path / "project", tmp_path / "source"
    project.mkdir()
    (source / "sub").mkdir(parents=True)
    for name, content in {"sub/x": "", "sub/y": "", "top": "", "run.sh": "cat sub/y\n", "mod.py": ""}.items():
        (source / name).write_text(content)
    pipeline = {
        "name": "p",
        "fs_options": {"extra_fs": [{"name": "d", "mount_path": "/mnt/d"}]},
        "entry_points": {"s": {"command": command}},
    }
    who = RunIdentity("run-000001", "me", str(project), file_systems={"d": str(source)})
    (node,) = resolve_nodes(parse_pipeline(json.dumps(pipeline), "run.yaml"), who)
    assert isinstance(node, ResolvedStep)
    found = scripts_of(node, mentions=True)
    assert set(found.files) == {f"{source}/{name}".rstrip("/") for name in files}
    assert set(found.mentioned) == {f"{source}/{name}" for name in mentioned}
    assert found.unknown == []


DATA = {"data/1.txt", "data/2.txt"}


def made_in(tmp_path: Path) -> None:
    for name in ("data/1.txt", "data/2.txt", "data/deep/3.csv", "logs/l", "repository/.git/HEAD", "repository/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("cat data/*.txt", DATA),
        ("cat data/?.txt data/[13].txt", DATA),
        ("cat ./data/*", {*DATA, "data/deep"}),
        ("cd data && cat *.txt", DATA),
        ("for f in data/*.txt; do cat $f; done", DATA),
        ("tool --in=data/*.txt", DATA),
        ("cat data/*.none", set()),
        ("python3 other.py 'data/*.txt' --more=\"data/deep/*.csv\"", {"other.py", *DATA, "data/deep/3.csv"}),
        ("grep -r 'data/*.txt' other.py; expr 2 '*' 3; find x.pl -name 'data/*'", {"other.py", "x.pl"}),
        ("python3 other.py hydra.run.dir=logs hydra.out_dir=logs trainer.data=data", {"other.py", "data"}),
        ("ls data", {"data"}),
        ("cp -r data/ logs", {"data"}),
        ("tar cf - data | wc -c", {"data"}),
        ("python3 other.py --dir data", {"other.py", "data"}),
        ("python3 other.py --dir=\"data\" --out-dir='logs'", {"other.py", "data"}),
        ("python3 other.py --dir=data --log-dir logs --out=logs -o logs", {"other.py", "data"}),
        ("LOGS=logs tool data/deep", {"data/deep"}),
        ("mkdir -p logs && tool data logs", {"data"}),
        ("find data -name '*.txt'", {"data"}),
        ("test -d data; echo data; rm -rf data; touch data; PYTHONPATH=data true", set()),
        ("expr 2 + 3; ls no_such_folder /usr/lib", set()),
    ],
)
def test_folders_and_patterns_count(tmp_path, command, files):
    made_in(tmp_path)
    found = scripts(tmp_path, command)
    assert {os.path.relpath(file, tmp_path) for file in found.files} == files
    assert found.unknown == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ls .", "ls ."),
        ("cp -r repository logs", "cp -r repository logs"),
        ("tool data > data/log", "tool data"),
        ("tool --dir many", "tool --dir many"),
        ("cat many/*", "cat many/*"),
    ],
)
def test_a_folder_that_cannot_count_is_told(tmp_path, command, said, monkeypatch):
    monkeypatch.setattr("weft.frontends.pipelines.named_files._MOST_IN_FOLDER", 100)
    monkeypatch.setattr("weft.frontends.pipelines.scripts._MOST_FILES", 100)
    made_in(tmp_path)
    (tmp_path / "many").mkdir()
    for number in range(101):
        (tmp_path / "many" / str(number)).touch()
    found = scripts(tmp_path, command)
    assert found.unknown == [said]
    assert not found.files


PLACED = {
    "d/x.csv": "",
    "d/lib.sh": "",
    "d/enters.sh": 'cd "$(dirname "$0")"\ncat x.csv\n',
    "d/asks.sh": 'HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n. "$HERE/lib.sh"\ncat "$HERE/x.csv"\n',
    "d/strips.sh": 'cat "${0%/*}/x.csv"\n',
    "given.sh": "cat $1/${2}.csv\n",
    "star.py": "from pkg import *\n",
    "pkg/__init__.py": "__all__ = ['low']\n",
    "pkg/low.py": "",
    "adds.py": "import sys\nsys.path.insert(0, 'd')\nimport inside\n",
    "d/inside.py": "",
}


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("F=d/x; cat $F.csv", {"d/x.csv"}),
        ("D='d'\nN=x; cat ${D}/$N.csv", {"d/x.csv"}),
        ("sh d/enters.sh", {"d/enters.sh", "d/x.csv"}),
        ("sh d/asks.sh", {"d/asks.sh", "d/lib.sh", "d/x.csv"}),
        ("sh ./d/strips.sh", {"d/strips.sh", "d/x.csv"}),
        ("sh given.sh d x", {"given.sh", "d", "d/x.csv"}),
        ("python3 star.py", {"star.py", "pkg/__init__.py", "pkg/low.py"}),
        ("python3 adds.py", {"adds.py", "d/inside.py"}),
    ],
)
def test_the_folder_and_the_arguments_of_a_script_are_known(tmp_path, command, files):
    for name, text in PLACED.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = scripts(tmp_path, command)
    assert {os.path.relpath(file, tmp_path) for file in found.files} == files


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("open('d/x.csv')", [("d/x.csv", False, False)]),
        ("with open('names') as f: pass", [("names", False, False)]),
        ("N = 'names'\nopen(N)\nopen(name)\nopen('names', 'w')", [("names", False, False)]),
        ("open(os.path.join('d', 'x.csv'))", [("d/x.csv", False, False)]),
        ("(Path(__file__).parent / 'd' / 'x.csv').read_text()", [("d/x.csv", True, False)]),
        ("os.path.join(os.path.dirname(__file__), '..', 'x.csv')", [("../x.csv", True, False)]),
        ("open(f'd/{name}.csv')", [("d", False, True)]),
        ("open('d/' + sys.argv[1])", [("d", False, True)]),
        ("D = 'd'\nopen(f'{D}/x.csv')", [("d/x.csv", False, False)]),
        ("D = 'd'\nopen(D + '/x.csv')", [("d/x.csv", False, False)]),
        ("glob.glob('d/*.csv')", [("d", False, True)]),
        ("os.listdir('d')", [("d", False, True)]),
        ("parser.add_argument('--data', default='d')", [("d", False, False)]),
        ("open('x.csv', 'w')", []),
        ("open('x.csv', 'a+')", [("x.csv", False, False)]),
        ("Path('x.csv').write_text('')", []),
        ("frame.to_csv('x.csv')", []),
        ("HERE = os.path.dirname(__file__)", []),
        ("Path('x.csv').write_text(open('d/y.csv').read())", [("d/y.csv", False, False)]),
        ("'no path'", []),
        ("os.system('d/h.py > out')", [("d/h.py", False, False), ("d/h.py > out", False, False)]),
        ("run(f'python3 h.py {x}', shell=True)", [("h.py", False, False), ("python3 h.py ", False, False)]),
        ("C = 'tool d/x.csv'\nPopen(C.split())", [("tool d/x.csv", False, False), ("d/x.csv", False, False)]),
        ("run(shlex.split('sh a.sh;'))", [("a.sh", False, False), ("sh a.sh;", False, False)]),
        ("resources.files('pk.data').joinpath('c.json').read_text()", [("pk/data/c.json", False, False)]),
        ("(resources.files(__package__) / 'c.json').read_text()", [("c.json", True, False)]),
        ("pkgutil.get_data('pk', 'd/c.json')", [("pk/d/c.json", False, False)]),
        ("def (:", []),
    ],
)
def test_paths_that_a_program_puts_together_are_named(text, paths):
    assert paths_named(text) == [PathText(*one) for one in paths]


def test_paths_with_variables_of_this_process_have_their_values(monkeypatch):
    monkeypatch.setenv("DATA", "d")
    monkeypatch.delenv("NOWHERE", raising=False)
    text = """
    open(os.environ["DATA"] + "/a"); open(os.path.join(os.getenv("DATA"), "b"))
    open(f"{os.environ['DATA']}/c"); open(Path(os.environ.get("NOWHERE", "e")) / "f")
    open(os.environ["NOWHERE"] + "/g")
    """
    found = [path.text for path in paths_named("if True:" + text)]
    assert [path for path in found if path != "/g"] == ["d/a", "d/b", "d/c", "e/f"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"output": "d/made.csv", "data": ["d/x.csv", 0.5, "s3://b/x.csv"], "n": 1.5}'),
        ("c.yaml", "# d/comment.csv\nlog_dir: d\ndata:\n  train: d/x.csv\nout: [d/made.csv]\n"),
        ("c.toml", "[data]\ntrain = 'd/x.csv' # d/comment.csv\nresults = 'd/made.csv'\n"),
        ("d/c.ini", "[data]\n; d/comment.csv\ntrain = x.csv\nsave_to = made.csv\n"),
        (".env", "DATA=d/x.csv\nTMP=d/made.csv\n"),
    ],
)
def test_files_that_a_configuration_names_are_mentioned(tmp_path, name, text):
    for path in ("d/x.csv", "d/made.csv", "d/comment.csv"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / name).write_text(text)
    (tmp_path / "reads.py").write_text(f"open('{name}')")
    who = RunIdentity("run-000001", "me", str(tmp_path))
    for command in (f"tool {name}", f"tool --config={name} > d/made", "python3 reads.py", f"tool {name} d/x.csv"):
        (node,) = resolve_nodes(
            parse_pipeline(f"name: p\nentry_points:\n  s: {{command: '{command}'}}", "run.yaml"), who
        )
        assert isinstance(node, ResolvedStep)
        found = scripts_of(node, mentions=True)
        said = {os.path.relpath(path, tmp_path) for path in found.mentioned} - {name}
        assert said == (set() if command.endswith("x.csv") else {"d/x.csv"})


def test_folders_that_a_program_reads_are_mentioned(tmp_path):
    for name, text in {"d/x.csv": "", "e/y.csv": "", "u.py": "open(f'd/{1}.csv'), open(f'e/{1}.csv')"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (node,) = resolve_nodes(
        parse_pipeline("name: p\nentry_points:\n  s: {command: 'python3 u.py > e/z'}", "run.yaml"),
        RunIdentity("run-000001", "me", str(tmp_path)),
    )
    assert isinstance(node, ResolvedStep)
    found = scripts_of(node, mentions=True)
    assert [os.path.relpath(path, tmp_path) for path in found.mentioned] == ["d"]


TOLD = {
    "d/x.csv": "",
    "d/y.csv": "",
    "h.js": "",
    "lib/h.js": "",
    "h.rb": "",
    "q.sql": "select * from 'd/x.csv'",
    "m.js": "const h = require('./h'); console.log(`${h}`, 'no.file')",
    "lib/m.mjs": "import h from './h.js'",
    "m.rb": "require_relative 'h'\nFile.read(\"d/y.csv\")",
    "m.pl": "open(F, 'd/x.csv')",
}


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("""duckdb -c "select * from 'd/x.csv'" """, {"d/x.csv"}),
        ("""weft sql "select * from 'd/*.csv' where a = '$A'" """, {"d"}),
        ("""tool '{"f": "d/x.csv", "g": "d/no.csv"}'""", {"d/x.csv"}),
        ("""python3 u.py '{"f": "d/x.csv"}'""", {"d/x.csv"}),
        ("""python3 -c 'sql("select * from \\"d/*.csv\\""); open("h.js", "w")'""", {"d"}),
        ("tool <<X\n{'f': 'd/y.csv'}\nX", {"d/y.csv"}),
        ("duckdb < q.sql", {"d/x.csv"}),
        ("perl -e 'open(F, \"d/x.csv\")'", {"d/x.csv"}),
        ("perl m.pl", {"d/x.csv"}),
        ("node m.js", {"h.js"}),
        ("node lib/m.mjs", {"h.js", "lib/h.js"}),
        ("ruby m.rb", {"h.rb", "d/y.csv"}),
        ("python3 -c 'import os; os.system(\"cat d/x.csv\")'", {"d/x.csv"}),
        ("""echo "see 'd/x.csv'"; grep "'d/x.csv'" m.pl d/x.csv""", set()),
        ("""tool "say 'd/x.csv'" d/x.csv > d/y.csv""", set()),
    ],
)
def test_files_in_quotes_in_other_texts_are_mentioned(tmp_path, command, paths):
    for name, text in TOLD.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (node,) = resolve_nodes(
        parse_pipeline(json.dumps({"name": "p", "entry_points": {"s": {"command": command}}}), "run.yaml"),
        RunIdentity("run-000001", "me", str(tmp_path)),
    )
    assert isinstance(node, ResolvedStep)
    found = scripts_of(node, mentions=True)
    assert {os.path.relpath(path, tmp_path) for path in found.mentioned} == paths


@pytest.mark.parametrize(
    "added",
    [
        '"."',
        '""',
        "os.getcwd()",
        "str(Path.cwd())",
        "os.path.dirname(os.path.dirname(os.path.abspath(__file__)))",
        'os.path.join(os.path.dirname(__file__), "..")',
        "str(Path(__file__).resolve().parents[1])",
        "str(ROOT)",
        "\n    str(Path(__file__).resolve().parent.parent)\n",
    ],
)
def test_modules_of_the_project_are_found_by_a_script_in_a_folder_that_adds_it(tmp_path, added):
    files = {
        "tools/run.py": f"ROOT = Path(__file__).resolve().parent.parent\nsys.path.append({added})\nimport lib.deep\n",
        "tools/plain.py": "import lib.deep, lib.near\n",
        "tools/lib/near.py": "",
        "lib/__init__.py": "",
        "lib/deep.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def found(command: str) -> set[str]:
        return {os.path.relpath(file, tmp_path) for file in scripts(tmp_path, command).files}

    assert found("python3 tools/plain.py") == {"tools/plain.py", "tools/lib/near.py"}
    (tmp_path / "tools/lib/near.py").unlink()
    (tmp_path / "tools/lib").rmdir()
    assert {"lib/__init__.py", "lib/deep.py"} <= found("python3 tools/run.py")


CALLED = {
    "late.py": "",
    "other.py": "",
    "p.awk": "",
    "sub/x.py": "",
    "plain.sh": 'python "$1.py"\n',
    "function.sh": 'run() { python "$1.py"; }\nrun other\n',
    "sets.sh": 'set -- other\npython "$1.py"\n',
    "logs.sh": 'log() { echo "$1"; }\npython "$1.py"\nlog "it is done"\n',
    "library.sh": 'run() { python "$1.py"; }\nnobody() { cat "$1"; }\n',
}


def called(folder: Path, command: str) -> tuple[set[str], list[str]]:
    for name, text in CALLED.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (node,) = resolve_nodes(
        parse_pipeline(json.dumps({"name": "p", "entry_points": {"s": {"command": command}}}), "run.yaml"),
        RunIdentity("run-000001", "me", str(folder)),
    )
    assert isinstance(node, ResolvedStep)
    found = scripts_of(node)
    return {os.path.relpath(file, folder) for file in found.files}, found.unknown


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ('run() { python "$1.py"; }\nrun late; run other', {"late.py", "other.py"}),
        ("function run { python $1.py; }; run late", {"late.py"}),
        ("function run() { local f=$1; python $f.py; }; run late", {"late.py"}),
        ('run () (cd sub; cat "$1"); run x.py; python late.py', {"sub/x.py", "late.py"}),
        (
            'run()\n{\n  cat <<X\n}\nX\n  { "$@"; }\n}\nrun cat p.awk; run ./plain.sh late',
            {"p.awk", "plain.sh", "late.py"},
        ),
        ('x() { y "$1" py; }; y() { cat $1.$2; }; x late', {"late.py"}),
        ("run() { python ${1:-late}.py; }; run other", {"other.py"}),
        ("run() { cd sub; }; run; python x.py", {"sub/x.py"}),
        ("again() { again; }; again; cat p.awk", {"p.awk"}),
        ("run() { python $name.py; }; name=late; run", {"late.py"}),
        ('usage() { echo "usage: $1"; exit 1; }\n[ $# -gt 0 ] || usage\npython late.py', {"late.py"}),
        ("cat <<'X' > made.js\nfunction f() { require('./gone.js') }\nX\npython late.py", {"late.py"}),
        (". ./library.sh; run late", {"library.sh", "late.py"}),
        ("sh function.sh late", {"function.sh", "other.py"}),
        ("sh logs.sh late", {"logs.sh", "late.py"}),
        ('set -- late other; for f in "$@"; do cat $f.py; done', {"late.py", "other.py"}),
        ("set -e -- late; for f; do cat $f.py; done", {"late.py"}),
        ("set -euo pipefail; python late.py", {"late.py"}),
        ("set -- sub; cd $1; python x.py", {"sub", "sub/x.py"}),
        ("(cd sub && python x.py); python late.py", {"sub/x.py", "late.py"}),
        ("(cd $SOMEWHERE; ls); python late.py", {"late.py"}),
        ("cd -P -- sub; python x.py", {"sub/x.py"}),
    ],
)
def test_words_that_functions_and_arguments_put_together_are_known(tmp_path, command, files):
    assert called(tmp_path, command) == (files, [])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sh sets.sh late", 'python "$1.py"'),
        ("if [ $A ]; then set -- late; else set -- other; fi; python $1.py", "python $1.py"),
        ("set late; python $1.py", "python $1.py"),
        ('main() { python "$1.py"; }; main "$X"', 'python "$1.py"'),
        ("f() { shift; python $1.py; }; f a late", "python $1.py"),
        ('. ./library.sh; "$X" late', '"$X" late'),
        ("run() { name=other; }; name=late; run; python $name.py", "python $name.py"),
        ("cd $SOMEWHERE; python late.py", "python late.py"),
        ("cd; python late.py", "python late.py"),
        ("cd $SOMEWHERE; ls | xargs python late.py", "python late.py"),
    ],
)
def test_words_that_may_be_other_ones_are_told(tmp_path, command, said):
    assert said in called(tmp_path, command)[1]
