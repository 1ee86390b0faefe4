"""What a cached step opens while it runs is an input of its result, whether or not anybody has named it."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.places import Commands, until
from tests.integration.test_cache import Place, step
from tests.integration.test_mounts import mounting
from weft.operators.tracing import can_trace
from weft.runs.reading import read_run

pytestmark = pytest.mark.skipif(not can_trace(), reason="this system does not tell which files a command opens")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    (tmp_path / "project" / "data").mkdir(parents=True)
    place = Place(tmp_path / "project")
    monkeypatch.setenv("TRACE", str(place.trace))
    monkeypatch.chdir(place.folder)
    (place.folder / "data" / "x.csv").write_text("one\n")
    return place


def result(place: Place) -> str:
    """Run the pipeline, and return its output."""
    ended = place.run()
    assert ended.error is None
    return Path(ended.outputs["a.o"]).read_text()


READS_A_DATABASE = """
import sqlite3

with sqlite3.connect("da" + "ta/x.csv") as db:
    db.execute("CREATE TABLE IF NOT EXISTS t (n)")
    print(db.execute("SELECT count(*) FROM t").fetchone()[0])
"""
IDIOMS = {
    "a default in a script": ("sh run.sh > {{o}}", 'F=${F:-data/x.csv}\ncat "$F"\n'),
    "a descriptor": ("sh run.sh > {{o}}", "exec 3< data/x.csv\ncat <&3\n"),
    "a name from a program": ("D=$(printf da; printf ta); cat $D/x.csv > {{o}}", ""),
    "a trap": ("trap 'cat data/x.csv > {{o}}' EXIT", ""),
    "a here-document of Python": ("python3 - > {{o}} <<'END'\nprint(open('data/' + 'x.csv').read())\nEND", ""),
    "a shell below Python": ("python3 run.sh > {{o}}", "import os\nos.system('cat data/x.csv')\n"),
    "a function of a shell": ("f() { cat data/$1; }; f x.csv > {{o}}", ""),
    "a pattern of Python": (
        "python3 run.sh 'data/*' > {{o}}",
        "import glob, sys\nprint(open(glob.glob(sys.argv[1])[0]).read())\n",
    ),
    "a name after a colon": ("FILES=data/y.csv:data/x.csv; cat ${FILES#*:} > {{o}}", ""),
}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_a_file_that_is_named_in_any_way_counts(place, idiom):
    command, script = IDIOMS[idiom]
    (place.folder / "run.sh").write_text(script)
    place.write({"a": step(command, "o")})
    first = result(place)
    assert result(place) == first
    assert place.ran() == {"a": 1}, "an unchanged project is used again"
    (place.folder / "data" / "x.csv").write_text("two\n")
    assert "two" in result(place)
    assert place.ran() == {"a": 1}


@pytest.mark.parametrize("folder", ["lib/python", "lib/python_tools", "site-packages-data"])
def test_folders_of_the_project_with_the_names_of_libraries_count(place, folder):
    (place.folder / folder).mkdir(parents=True)
    (place.folder / folder / "x.csv").write_text("one\n")
    place.write({"a": step(f"D=$(echo {folder}); cat $D/x.csv > {{{{o}}}}", "o")})
    assert result(place) == "one\n"
    (place.folder / folder / "x.csv").write_text("two\n")
    assert result(place) == "two\n"


LOOKS = {
    "its size": "python3 -c \"import os; print(os.path.getsize('da' + 'ta/x.csv'))\" > {{o}}",
    "whether it is there": "D=$(printf da; printf ta); if test -f $D/y.csv; then echo yes; else echo no; fi > {{o}}",
    "which is newer": "D=$(printf da; printf ta); if [ $D/x.csv -nt run.yaml ]; then echo x; fi > {{o}}",
    "make": "make -s > {{o}}",
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_file_that_is_only_looked_at_counts(place, look):
    (place.folder / "Makefile").write_text("D := $(shell printf da; printf ta)\nold: $(D)/x.csv\n\t@echo newer\n")
    (place.folder / "old").touch()
    os.utime(place.folder / "data" / "x.csv", (1, 1))
    place.write({"a": step(LOOKS[look], "o")})
    first = result(place)
    assert result(place) == first
    assert place.ran() == {"a": 1}
    data, now = place.folder / "data", time.time()
    if "there" in look:
        (data / "y.csv").write_text("")
    (data / "x.csv").write_text("longer\n")
    os.utime(data / "x.csv", (now + 60, now + 60))
    weft = Commands(place.folder, {"WEFT_USER": "me"})
    changed = "data/y.csv is there now" if "there" in look else "data/x.csv changed"
    assert f"{changed}, compared with run-000001" in weft("plan", "run.yaml")[0]
    assert result(place) != first
    assert place.ran() == {"a": 1}


def test_a_file_that_a_script_asks_for_counts_only_by_whether_it_is_there(place):
    (place.folder / "ask.py").write_text("import os\nprint(os.path.exists('da' + 'ta/x.csv'))\n")
    place.write({"a": step("python3 ask.py > {{o}}", "o")})
    assert result(place) == "True\n"
    (place.folder / "data" / "x.csv").write_text("longer\n")
    assert result(place) == "True\n"
    assert place.ran() == {"a": 1}
    (place.folder / "data" / "x.csv").unlink()
    assert result(place) == "False\n"


@pytest.mark.parametrize("kind", ["a function", "a script in a scope"])
def test_code_that_no_command_names_may_look(place, kind):
    if kind == "a function":
        (place.folder / "asking.py").write_text(FLOW_THAT_LOOKS)
        file = "asking.py"
    else:
        (place.folder / "lib").mkdir()
        (place.folder / "lib" / "ask.py").write_text("import os\nprint(os.path.exists('da' + 'ta/y.csv'))\n")
        one = step("cd $(printf lib); python3 ask.py > {{o}}", "o")
        one["command"] = "P=$(printf lib)/ask.py; python3 $P > {{o}}"
        one["cache"] = {"enable": True, "fs_scope": [{"name": "main", "path": "lib"}]}
        place.write({"a": one})
        file = "run.yaml"
    weft = Commands(place.folder, {"WEFT_USER": "me"})
    weft("run", file, "-q")
    weft("run", file, "-q")
    assert read_run(place.folder_of("run-000002")).steps[0].message == "taken from the cache"
    (place.folder / "data" / "y.csv").write_text("two\n")
    assert "data/y.csv is there now" in weft("plan", file)[0]


LOADS_ONCE = """
import os, sys

rows = open("da" + "ta/x.csv").readlines()
with open(sys.argv[1], "w") as out:
    out.writelines(rows if not os.path.exists("mark") else [])
open("mark", "w").close()
"""


def test_a_step_that_looks_for_its_own_mark_runs_again_after_the_first_load(place):
    (place.folder / "load.py").write_text(LOADS_ONCE)
    place.write({"a": step("python3 load.py {{o}}", "o")})
    assert result(place) == "one\n"
    assert "mark is there now" in Commands(place.folder, {"WEFT_USER": "me"})("plan", "run.yaml")[0]
    assert [result(place), result(place)] == ["", ""]
    assert place.ran() == {"a": 2}
    (place.folder / "mark").unlink()
    assert result(place) == "one\n"


def test_a_step_that_makes_a_folder_where_none_is_keeps_its_result(place):
    make = "import os\nif not os.path.isdir('mo' + 'dels'):\n    os.makedirs('models/deep')\nopen('models/m', 'w')\n"
    (place.folder / "make.py").write_text(make)
    place.write({"a": step("python3 make.py; echo 1 > {{o}}", "o")})
    assert [result(place), result(place)] == ["1\n", "1\n"]
    assert place.ran() == {"a": 1}


def test_a_file_in_a_hidden_folder_of_the_project_counts(place):
    (place.folder / ".conf").mkdir()
    (place.folder / "read.py").write_text("print(open('.co' + 'nf/x.json').read())")
    place.write({"a": step("python3 read.py > {{o}}", "o")})
    for text in ("one", "two", "two"):
        (place.folder / ".conf" / "x.json").write_text(text)
        assert result(place) == f"{text}\n"
    assert place.ran() == {"a": 2}


def test_the_change_is_told_in_a_plan_and_afterwards(place):
    place.write({"a": step("D=$(printf da; printf ta); cat $D/x.csv > {{o}}", "o")})
    result(place)
    (place.folder / "data" / "x.csv").write_text("two\n")
    weft = Commands(place.folder, {"WEFT_USER": "me"})
    assert "data/x.csv changed, compared with run-000001" in weft("plan", "run.yaml")[0]
    result(place)
    assert "data/x.csv changed, compared with run-000001" in weft("why", "@last/a")[0]


@pytest.mark.parametrize("name", ["x.db", "$(printf x.; printf db)"], ids=["named", "computed"])
def test_what_others_have_committed_to_a_database_counts_before_it_is_in_its_file(place, name):
    file = place.folder / "x.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA journal_mode = wal")
        db.execute("CREATE TABLE t (n)")
        db.commit()
    (place.folder / "read.py").write_text(COUNTS_ROWS)
    place.write({"a": step(f"python3 read.py {name} > {{{{o}}}}", "o")})
    assert result(place) == result(place) == "0\n"
    assert place.ran() == {"a": 1}
    before, log = file.read_bytes(), place.folder / "x.db-wal"
    with subprocess.Popen(
        [sys.executable, "-c", INSERTS, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        for count in (1, 2):
            server.stdin.write("insert\n")
            server.stdin.flush()
            assert server.stdout.readline() == "committed\n"
            assert file.read_bytes() == before
            until(lambda: time.time() - log.stat().st_ctime > 0.2, "a time at which the step cannot have written")
            assert result(place) == result(place) == f"{count}\n"
            assert place.ran() == {"a": 1}
    until(lambda: time.time() - file.stat().st_ctime > 0.2, "a time at which the step cannot have written")
    assert result(place) == result(place) == "2\n"
    assert place.ran() == {"a": 1}


INSERTS = """
import sqlite3, sys

db = sqlite3.connect(sys.argv[1])
for line in sys.stdin:
    db.execute("INSERT INTO t VALUES (1)")
    db.commit()
    print("committed", flush=True)
db.close()
"""
COUNTS_ROWS = """
import contextlib, sqlite3, sys

with contextlib.closing(sqlite3.connect(sys.argv[1])) as db:
    print(db.execute("SELECT count(*) FROM t").fetchone()[0])
"""


def test_a_database_counts_that_is_opened_to_be_written_and_only_read(place):
    file = place.folder / "data" / "x.csv"
    file.unlink()
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE t (n)")
    until(lambda: time.time() - file.stat().st_ctime > 0.2, "a time at which the step cannot have made it")
    (place.folder / "read.py").write_text(READS_A_DATABASE)
    place.write({"a": step("python3 read.py > {{o}}", "o")})
    assert result(place) == "0\n"
    assert result(place) == "0\n"
    assert place.ran() == {"a": 1}
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("INSERT INTO t VALUES (1)")
    assert result(place) == "1\n"


UPDATES = {
    "a database": """import sqlite3
with sqlite3.connect("da" + "ta/x.csv") as db:
    db.execute("INSERT INTO u SELECT count(*) FROM t")
    print(*db.execute("SELECT max(n) FROM u").fetchone())
""",
    "a file to add to": """with open("da" + "ta/x.csv", "a+b") as file:
    file.seek(0)
    print(len(file.read().split(b"INSERTED")))
    file.write(b" ")
""",
}


@pytest.mark.parametrize("kind", UPDATES)
def test_a_file_that_a_step_reads_and_changes_and_would_make_is_no_reason_to_take_a_result(place, kind):
    file = place.folder / "data" / "x.csv"
    file.unlink()
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE t (n)")
        db.execute("CREATE TABLE u (n)")
    until(lambda: time.time() - file.stat().st_ctime > 0.2, "a time at which the step cannot have made it")
    (place.folder / "update.py").write_text(UPDATES[kind])
    place.write({"a": step("python3 update.py > {{o}}", "o")})
    first = result(place)
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("INSERT INTO t VALUES ('INSERTED')")
    assert int(result(place)) == int(first) + 1


LOADS_WHAT_IS_NEW = """
import os, sys

rows = open("da" + "ta/x.csv").readlines()
try:
    done = int(open("mark.txt").read())
except FileNotFoundError:
    done = 0
open(sys.argv[1], "w").writelines(rows[done:])
print(len(rows), file=open(%r, "w"))
if %r != "mark.txt":
    os.replace("mark.new", "mark.txt")
"""


@pytest.mark.parametrize("written", ["mark.txt", "mark.new"], ids=["in place", "by a new file"])
def test_a_step_that_reads_a_file_and_then_overwrites_it_keeps_no_result(place, written):
    (place.folder / "load.py").write_text(LOADS_WHAT_IS_NEW % (written, written))
    place.write({"a": step("python3 load.py {{o}}", "o")})
    assert [result(place), result(place)] == ["one\n", ""]
    with (place.folder / "data" / "x.csv").open("a") as file:
        file.write("two\n")
    assert [result(place), result(place), result(place)] == ["two\n", "", ""]
    steps = read_run(place.folder_of("run-000003")).steps
    assert "it or another program changed what it reads while it ran: mark.txt" in steps[0].message


def test_a_step_that_writes_a_file_and_then_reads_it_keeps_its_result(place):
    (place.folder / "own.py").write_text("open('own', 'w').write('own')\nprint(open('own').read())\nopen('own', 'a')\n")
    place.write({"a": step("python3 own.py > {{o}}", "o")})
    assert [result(place), result(place)] == ["own\n", "own\n"]
    assert place.ran() == {"a": 1}


@pytest.mark.parametrize("folder", [".", "..", "../none"])
def test_a_file_that_was_not_there_counts(place, folder):
    place.write({"a": step(f"N=$(echo {folder}/more); cat $N.txt > {{{{o}}}} 2>&1 || true", "o")})
    result(place)
    result(place)
    assert place.ran() == {"a": 1}
    (place.folder / folder).mkdir(exist_ok=True)
    (place.folder / folder / "more.txt").write_text("more")
    assert result(place) == "more"


THROUGH_A_LINK = {
    "resolve": "from pathlib import Path\nprint((Path('latest').resolve() / 'x').read_text())",
    "chdir": "import os\nos.chdir('latest')\nprint(open('x').read())",
    "a program": "import subprocess\nsubprocess.run(['cat', 'x'], cwd='latest')",
    "readlink": "import os\nprint(open(os.readlink('latest') + '/x').read())",
    "a folder's descriptor": "import os\nf = os.open('latest', os.O_PATH)\n"
    "print(open(os.open('x', os.O_RDONLY, dir_fd=f)).read())",
    "an open folder": "import os\nf = os.open('latest', os.O_RDONLY)\n"
    "print(open(os.open('x', os.O_RDONLY, dir_fd=f)).read())",
    "the folder above": "print(open('late' + 'st/inner/../x').read())",
}


@pytest.mark.parametrize("way", THROUGH_A_LINK)
def test_the_target_of_a_link_counts_whatever_goes_through_it(place, way):
    for name in ("one", "two"):
        (place.folder / name / "inner").mkdir(parents=True)
        (place.folder / name / "x").write_text(name)
    (place.folder / "latest").symlink_to("one")
    (place.folder / "read.py").write_text(THROUGH_A_LINK[way])
    place.write({"a": step("python3 read.py > {{o}}", "o")})
    first = result(place)
    assert "one" in first
    assert result(place) == first
    assert place.ran() == {"a": 1}, "an unchanged project is used again"
    (place.folder / "latest").unlink()
    (place.folder / "latest").symlink_to("two")
    assert "two" in result(place)


ELSEWHERE = {
    "a hard link": "os.link('data/' + 'x.csv', 'twin'); print(open('twin').read()); os.unlink('twin')",
    "a hard link that stays": "os.path.exists('twin') and os.unlink('twin'); os.link('data/' + 'x.csv', 'twin')\n"
    "print(open('twin').read())",
    "a link that it removes": "os.symlink('data/' + 'x.csv', 'twin'); print(open('twin').read()); os.unlink('twin')",
    "a link that stays": "os.path.lexists('twin') or os.symlink('data/' + 'x.csv', 'twin')\nprint(open('twin').read())",
    "an output": "os.link('data/' + 'x.csv', sys.argv[1])",
}


@pytest.mark.parametrize("way", ELSEWHERE)
def test_a_file_that_is_read_by_another_name_counts(place, way):
    file = place.folder / "data" / "x.csv"
    (place.folder / "read.py").write_text(f"import os, sys\n{ELSEWHERE[way]}\n")
    place.write({"a": step("python3 read.py {{o}}" + " > {{o}}" * (way != "an output"), "o")})
    until(lambda: time.time() - file.stat().st_mtime > 0.2, "a time at which the step cannot have made it")
    first = result(place)
    assert result(place) == first
    assert place.ran() == {"a": 2 if "stays" in way else 1}, "it looks whether its own file is there"
    assert result(place) == first
    assert place.ran() == {}
    file.unlink()
    file.write_text("two\n")
    assert "two" in result(place)


def test_a_file_that_the_step_moves_away_counts_when_it_is_there_again(place):
    place.write({"a": step("cd $(printf da; printf ta); mv x.csv done; cat done > {{o}}", "o")})
    assert result(place) == "one\n"
    assert result(place) == "one\n"
    assert place.ran() == {"a": 1}
    (place.folder / "data" / "x.csv").write_text("two\n")
    assert result(place) == "two\n"


def test_names_in_a_folder_that_is_listed_count(place):
    place.write({"a": step("D=$(printf da; printf ta); ls $D > {{o}}", "o")})
    assert result(place) == "x.csv\n"
    (place.folder / "data" / ".x.csv.swp").write_text("of an editor")
    result(place)
    assert place.ran() == {"a": 1}
    (place.folder / "data" / "y.csv").write_text("")
    assert result(place) == "x.csv\ny.csv\n"


FINDS_FILES = """
import glob

print([open(path).read() for path in sorted(glob.glob(%r + "*.csv"))])
open(%r + "sum", "w").write("done")
"""
CROWDED = {"the folder of the project": ("", ""), "a folder that it writes to": ("data/", "data/.")}


@pytest.mark.parametrize("folder", CROWDED)
def test_a_new_file_like_those_that_a_step_finds_counts_in_a_folder_with_others(place, folder):
    found_in, _ = CROWDED[folder]
    (place.folder / "find.py").write_text(FINDS_FILES % CROWDED[folder])
    (place.folder / f"{found_in}x.csv").write_text("one\n")
    place.write({"a": step("python3 find.py > {{o}}", "o")})
    first = result(place)
    (place.folder / f"{found_in}notes.md").write_text("")
    assert result(place) == first
    assert place.ran() == {"a": 1}
    (place.folder / f"{found_in}y.csv").write_text("two\n")
    weft = Commands(place.folder, {"WEFT_USER": "me"})
    assert f"the names *.csv in {found_in or './'} changed, compared with run-000001" in weft("plan", "run.yaml")[0]
    assert result(place) == "['one\\n', 'two\\n']\n"


FINDS_FOLDERS = """
import glob

print([open(path).read() for path in sorted(glob.glob("store_*/sales.csv"))])
"""


def test_a_new_folder_like_those_that_a_step_finds_in_the_project_counts(place):
    def add(name: str) -> None:
        (place.folder / name).parent.mkdir()
        (place.folder / name).write_text(name)

    (place.folder / "find.py").write_text(FINDS_FOLDERS)
    add("store_a/sales.csv")
    place.write({"a": step("python3 find.py > {{o}}", "o")})
    first = result(place)
    add("build/made.csv")
    assert result(place) == first
    assert place.ran() == {"a": 1}
    add("store_c/sales.csv")
    said = Commands(place.folder, {"WEFT_USER": "me"})("plan", "run.yaml")[0]
    assert "the names */sales.csv in ./ changed, compared with run-000001" in said
    assert result(place) == "['store_a/sales.csv', 'store_c/sales.csv']\n"


TAKES_FILES = """
import glob, os, shutil

os.makedirs("done", exist_ok=True)
for path in sorted(glob.glob("data/*")):
    print(open(path).read())
    %s
"""


@pytest.mark.parametrize("take", ['shutil.move(path, "done/" + os.path.basename(path))', "os.remove(path)"])
@pytest.mark.parametrize("name", ["y.csv", "a"])
def test_a_new_file_counts_in_a_folder_whose_files_the_step_takes_away(place, take, name):
    (place.folder / "take.py").write_text(TAKES_FILES % take)
    place.write({"a": step("python3 take.py > {{o}}", "o")})
    (place.folder / "data" / "x.csv").rename(place.folder / "data" / name)
    assert result(place) == "one\n\n"
    assert result(place) == "one\n\n"
    assert place.ran() == {"a": 1}
    (place.folder / "data" / f"b{name}").write_text("two\n")
    assert result(place) == "two\n\n"


@pytest.mark.parametrize("new", ["y.csv", "data/y.csv"])
def test_a_step_that_walks_through_the_whole_project_is_reused_until_it_finds_more(place, new):
    place.write({"a": step("find . -name '*.csv' > {{o}}", "o")})
    first = result(place)
    assert result(place) == first
    assert place.ran() == {"a": 1}
    (place.folder / new).write_text("")
    assert new in result(place)


def test_files_that_the_step_makes_and_removes_do_not_count(place):
    command = (
        "D=$(printf da; printf ta); sort $D/x.csv > $D/tmp; mv $D/tmp $D/sorted; cat $D/sorted > {{o}}; rm $D/sorted"
    )
    place.write({"a": step(command, "o")})
    result(place)
    result(place)
    assert place.ran() == {"a": 1}


READS_THE_VARIABLE = """
import os, sys

open(sys.argv[1], "w").write(open(os.path.join(os.environ["DATA"], *sys.argv[2:])).read())
"""


@pytest.mark.parametrize("more", [[], ["x.csv"]], ids=["file", "folder"])
def test_a_variable_of_the_machine_that_names_what_the_step_opens_counts(place, monkeypatch, more):
    (place.folder / "read.py").write_text(READS_THE_VARIABLE)
    place.write({"a": step(f"python3 read.py {{{{o}}}} {' '.join(more)}", "o")})
    (place.folder / "other").mkdir()
    (place.folder / "other" / "x.csv").write_text("two\n")
    for folder, expected in (("data", "one\n"), ("other", "two\n"), ("other", "two\n")):
        data = place.folder.joinpath(folder, *([] if more else ["x.csv"]))
        monkeypatch.setenv("DATA", str(data))
        assert result(place) == expected
    assert place.ran() == {"a": 2}
    monkeypatch.setenv("DATA", "data")
    said = Commands(place.folder, {"WEFT_USER": "me", "DATA": "data"})("plan", "run.yaml")[0]
    assert "variable DATA: " in said
    assert " → data, compared with" in said


def test_a_variable_that_is_set_now_and_was_not_then_counts_if_it_names_a_file(place, monkeypatch):
    (place.folder / "read.py").write_text(
        "import os, sys\nopen(sys.argv[1], 'w').write(open(os.environ.get('CONFIG', 'dev' + '.json')).read())\n"
    )
    for name in ("dev", "prod"):
        (place.folder / f"{name}.json").write_text(name)
    place.write({"a": step("python3 read.py {{o}}", "o")})
    assert result(place) == "dev"
    monkeypatch.setenv("STAGE", "no file")
    monkeypatch.setenv("TMPDIR", str(place.folder / "data"))
    assert result(place) == "dev"
    assert place.ran() == {"a": 1}
    monkeypatch.setenv("CONFIG", "prod.json")
    commands = Commands(place.folder, {"WEFT_USER": "me"})
    assert "variable CONFIG is set now: prod.json, compared with" in commands("plan", "run.yaml")[0]
    assert [result(place), result(place)] == ["prod", "prod"]
    assert place.ran() == {"a": 1}
    assert "variable CONFIG is set now: prod.json, compared with" in commands("why", "run-000003/a")[0]


NAMES_A_VARIABLE = {
    "the command": ('D=$(printf %s "${DATA_DIR:-../one}"); cat $D/n > {{o}}', ""),
    "a script": ("sh run.sh > {{o}}", 'D=${DATA_DIR:-$PWD/../one}\ncat "$D/n"\n'),
    "a program": (
        "python3 run.sh > {{o}}",
        "import os\nprint(open(os.environ.get('DATA_DIR', '../one') + '/n').read())\n",
    ),
    "a function": (
        "",
        "import os\n\ndef read(o):\n    o.write_text(open(os.getenv('DATA_DIR', '../one') + '/n').read())\n",
    ),
}


@pytest.mark.parametrize("code", NAMES_A_VARIABLE)
def test_a_variable_counts_that_the_code_names_and_that_was_not_set(place, code, monkeypatch):
    command, text = NAMES_A_VARIABLE[code]
    (place.folder / ("run.sh" if command else "steps.py")).write_text(text)
    for name in ("one", "two"):
        (place.folder.parent / name).mkdir()
        (place.folder.parent / name / "n").write_text(name)
    of = {"kind": "python", "with": {"function": "steps:read"}}
    place.write({"a": step(command, "o") if command else {"artifacts": {"output": ["o"]}, "x-weft": of}})
    monkeypatch.delenv("DATA_DIR", raising=False)
    assert result(place).strip() == "one"
    monkeypatch.setenv("OTHER_DIR", str(place.folder.parent / "two"))
    assert read_run(place.run().folder).steps[0].message == "taken from the cache"
    monkeypatch.setenv("DATA_DIR", str(place.folder.parent / "two"))
    plan = Commands(place.folder, {"WEFT_USER": "me"})("plan", "run.yaml")[0]
    assert "variable DATA_DIR is set now, compared with run-00000" in plan, "its value may be a secret"
    assert result(place).strip() == "two"
    assert read_run(place.run().folder).steps[0].message == "taken from the cache"
    monkeypatch.delenv("DATA_DIR")
    assert result(place).strip() == "one"


FITS = "import sys\nopen('model' + '.bin', 'w').write('trained with lr=' + sys.argv[1])\n"


def trained(place: Place, lr: int) -> str:
    fit = step("python3 fit.py {{lr}}", parameters={"lr": lr})
    use = step("cat model.bin > {{o}}", "o", deps="fit", cache={"enable": False})
    place.write({"fit": fit, "use": use})
    ended = place.run()
    assert ended.error is None
    return Path(ended.outputs["use.o"]).read_text()


def test_a_file_that_a_step_leaves_in_the_project_is_a_part_of_its_result(place):
    (place.folder / "fit.py").write_text(FITS)
    for lr in (1, 2, 1):
        assert trained(place, lr) == f"trained with lr={lr}"
    assert place.ran() == {"fit": 3, "use": 3}
    trained(place, 1)
    assert place.ran() == {"use": 1}, "the file is as the step left it"
    (place.folder / "model.bin").unlink()
    said = Commands(place.folder, {"WEFT_USER": "me"})("plan", "run.yaml")[0]
    assert "model.bin, which it wrote and which is no output of it, is gone" in said
    assert trained(place, 1) == "trained with lr=1"
    assert place.ran() == {"fit": 1, "use": 1}


@pytest.mark.parametrize(
    "read",
    ["python3 read.py > {{o}}", "cat model.bin > {{o}}", "python3 size.py > {{o}}"],
    ids=["opened", "named", "looked at"],
)
def test_a_plan_tells_which_steps_depend_on_a_file_that_an_earlier_one_rewrites(place, read):
    (place.folder / "fit.py").write_text(FITS)
    (place.folder / "read.py").write_text("print(open('model' + '.bin').read())\n")
    (place.folder / "size.py").write_text("import os\nprint(os.path.getsize('model' + '.bin'))\n")

    def write(lr: int) -> None:
        fit = step("python3 fit.py {{lr}}", parameters={"lr": lr})
        other = step("cat data/x.csv > {{o}}", "o", deps="fit")
        place.write({"fit": fit, "use": step(read, "o", deps="fit"), "other": other})

    plan = Commands(place.folder, {"WEFT_USER": "me"})
    write(1)
    assert place.again() == {"fit": 1, "use": 1, "other": 1}
    place.again()  # now the file is there, so that a name in a command counts
    said = {one["step"]: one["outcome"] for one in plan.json("plan", "run.yaml")["steps"]}
    assert said == {"fit": "hit", "use": "hit", "other": "hit"}
    write(2)
    told = {one["step"]: (one["outcome"], one["reason"]) for one in plan.json("plan", "run.yaml")["steps"]}
    assert told["fit"][0] == "run"
    assert told["use"] == ("depends", "on model.bin, which fit writes: it runs again if that changes")
    assert told["other"][0] == "hit"
    assert place.again() == {"fit": 1, "use": 1}


def test_files_that_several_steps_add_to_and_logs_do_not_spoil_their_results(place):
    steps = {
        name: step(f"echo {name} >> all; echo {name} > {name}.log; echo {name} > {{{{o}}}}", "o") for name in ("a", "b")
    }
    steps["b"]["deps"] = "a"
    place.write(steps)
    assert place.again() == {"a": 1, "b": 1}
    assert place.again() == {}
    (place.folder / "a.log").unlink()
    assert place.again() == {}
    (place.folder / "all").unlink()
    assert place.again() == {"a": 1}, "then it is there again"


def test_a_file_that_the_items_of_a_loop_write_does_not_spoil_their_results(place):
    write = "echo {{PF_LOOP_ARGUMENT}} > scratch; cat scratch > {{o}}"
    place.write({"a": step(write, "o", loop_argument=["x", "y", "z"])}, parallelism=1)
    assert place.again() == {"a": 3}
    assert place.again() == {}
    (place.folder / "scratch").unlink()
    assert place.again() == {"a": 3}


@pytest.mark.parametrize("between", [True, False], ids=["cached reader", "reader without a cache"])
def test_a_step_between_two_that_write_one_file_reads_what_the_first_has_written(place, between):
    (place.folder / "sum.py").write_text("print(open('tm' + 'p.csv').read())\n")
    read = {
        name: step(f"python3 sum.py {name} > {{{{o}}}}", "o", deps=after)
        for name, after in (("low", "one"), ("high", "two"))
    }
    read["low"]["cache"] = {"enable": between}
    steps = {
        "one": step("echo 1 > tmp.csv"),
        "low": read["low"],
        "two": step("echo 2 > tmp.csv", deps="low"),
        "high": read["high"],
    }
    place.write(steps)
    for _ in range(3):
        ended = place.run()
        assert ended.error is None
        found = {name: Path(ended.outputs[f"{name}.o"]).read_text().strip() for name in ("low", "high")}
        assert found == {"low": "1", "high": "2"}
    assert place.ran() == {"one": 3, "low": 1 if between else 3, "two": 3, "high": 1}
    plan = Commands(place.folder, {"WEFT_USER": "me"}).json("plan", "run.yaml")["steps"]
    told = {one["step"]: (one["outcome"], one["reason"]) for one in plan}
    assert told["one"][0] == "run"
    assert told["two"] == ("depends", "on tmp.csv, which one writes: it runs again if that changes")


def changed_meanwhile(place: Place, command: str, change: Callable[[], object]) -> str:
    """Run a step, change something after its command, and return the message of the step."""
    mark = place.folder.parent / "mark"
    waits = f"echo > {mark}; while test -e {mark}; do sleep 0.01; done"
    place.write({"a": step(f"{command}; {waits}", "o")})
    ended = []
    run = threading.Thread(target=lambda: ended.append(place.run()))
    run.start()
    until(mark.exists)
    change()
    mark.unlink()
    run.join()
    return read_run(ended[0].folder).steps[0].message


def test_names_that_others_add_to_a_folder_while_it_is_listed_are_not_kept(place):
    said = changed_meanwhile(
        place, "ls $(printf da; printf ta) > {{o}}", lambda: (place.folder / "data" / "y.csv").write_text("")
    )
    assert "the names in a folder that it lists changed while it ran: data" in said


def test_a_link_that_others_repoint_while_it_is_read_through_is_not_kept(place):
    (place.folder / "one").write_text("one")
    (place.folder / "two").write_text("two")
    link = place.folder / "current"
    link.symlink_to("one")

    def repoint() -> None:
        link.unlink()
        link.symlink_to("two")

    said = changed_meanwhile(place, "cat $(printf cur; printf rent) > {{o}}", repoint)
    assert "a link that it goes through changed while it ran: current" in said


def test_a_file_that_others_change_while_it_is_open_to_be_changed_is_not_kept(place):
    reads = 'python3 -c \'print(open("data/" + "x.csv", "r+").read())\' > {{o}}'
    said = changed_meanwhile(place, reads, lambda: (place.folder / "data" / "x.csv").write_text("two\n"))
    assert "it or another program changed what it reads while it ran: data/x.csv" in said


def test_what_others_change_while_it_is_read_is_not_kept(place):
    file = place.folder / "data" / "x.csv"
    said = changed_meanwhile(place, "D=$(printf da; printf ta); cat $D/x.csv > {{o}}", lambda: file.write_text("two\n"))
    assert "what it reads changed while it ran: data/x.csv" in said
    place.ran()
    place.write({"a": step("D=$(printf da; printf ta); cat $D/x.csv > {{o}}; true", "o")})
    assert result(place) == "two\n"


def test_without_the_setting_and_for_programs_that_gain_privileges_only_names_count(place):
    place.write({"a": step("D=$(printf da; printf ta); cat $D/x.csv > {{o}}", "o")})
    weft = Commands(place.folder, {"WEFT_USER": "me", "WEFT_TRACE": "false"})
    weft("run", "run.yaml")
    place.write({"b": step("sudo --help; D=$(printf da; printf ta); cat $D/x.csv > {{o}}", "o")})
    result_of_b = Path(place.run().outputs["b.o"]).read_text()
    (place.folder / "data" / "x.csv").write_text("two\n")
    assert Path(place.run().outputs["b.o"]).read_text() == result_of_b
    place.write({"a": step("D=$(printf da; printf ta); cat $D/x.csv > {{o}}", "o")})
    assert result(place) == "one\n"


def test_files_that_the_function_of_a_step_opens_count_and_its_code_by_what_it_uses(place):
    (place.folder / "flow.py").write_text(FLOW)
    weft = Commands(place.folder)
    weft("run", "flow.py", "-q")
    (place.folder / "flow.py").write_text(FLOW + "\n\ndef unused():\n    return 1\n")
    weft("run", "flow.py", "-q")
    assert read_run(place.folder_of("run-000002")).steps[0].message == "taken from the cache"
    (place.folder / "data" / "x.csv").write_text("two\n")
    assert "data/x.csv changed" in weft("plan", "flow.py")[0]


FLOW = """
from pathlib import Path

import weft


@weft.step(cache=True)
def read(o: weft.Output):
    name = "".join(["da", "ta"])
    Path(o).write_text(Path(name, "x.csv").read_text())


@weft.pipeline
def flow():
    read()
"""


COMPUTED = {
    "an import": ("plug_b", 'import importlib\nreturn importlib.import_module("plug_" + "b").value()'),
    "an import in a package": ("models.small", 'return importlib.import_module(f"models.{which.lower()}").value()'),
    "a loaded module": ("used", "import importlib\nreturn importlib.import_module(which).value()"),
    "a text that is executed": (
        "rules.one",
        'names = {}\nfor name in sorted(os.listdir("rules")):\n'
        '    if name.endswith(".py"):\n        exec(open("rules/" + name).read(), names)\nreturn names["value"]()',
    ),
    "a path that is run": ("rules.one", 'return runpy.run_path(f"rules/{which}.py")["value"]()'),
    "a joined path": ("tools.t1", 'return out(sys.executable, os.path.join(HERE, "tools", "t1.py"))'),
    "a path of objects": ("tools.t1", 'return out(sys.executable, Path(__file__).parent / "tools" / "t1.py")'),
    "a helper": ("tools.t1", 'return tool("t1.py")'),
    "a shell": ("tools.t1", 'return out("sh", "-c", f"{sys.executable} {HERE}/tools/t1.py")'),
    "a module of a program": ("tools.t1", 'return out(sys.executable, "-m", "tools." + "t1")'),
    "a program of its own modules": ("used", 'return out(sys.executable, os.path.join(HERE, "tools", "deep.py"))'),
    "a plugin with its own modules": ("used", 'return importlib.import_module("plug_" + "deep").value()'),
}
COMPUTING = """
import importlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

import used
import weft

HERE = os.path.dirname(os.path.abspath(__file__))


def out(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def tool(name):
    return out(sys.executable, os.path.join(HERE, "tools", name))


@weft.step(cache=True)
def compute(o: weft.Output, which: str = "WHICH"):
    o.write_text(str(computed(which)))


def computed(which):
    used.other()
    BODY


"""
VALUE = """
def value():
    return "one"


def other():
    return 0


if __name__ == "__main__":
    print(value())
"""


def write_computing(place: Place, way: str, which: str = "Small") -> None:
    _, body = COMPUTED[way]
    for folder in ("models", "rules", "tools"):
        (place.folder / folder).mkdir()
    for name in {"used", "tools.t1", COMPUTED[way][0]}:
        place.folder.joinpath(*name.split(".")).with_suffix(".py").write_text(VALUE)
    (place.folder / "plug_deep.py").write_text("import used\nvalue = used.value\n")
    (place.folder / "tools" / "deep.py").write_text(
        "import os, sys\nsys.path.append(os.getcwd())\nimport used\nprint(used.value())\n"
    )
    text = COMPUTING.replace("WHICH", which).replace("BODY", body.replace("\n", "\n    "))
    (place.folder / "steps.py").write_text(text)
    of = {"kind": "python", "with": {"function": "steps:compute"}}
    place.write({"a": {"artifacts": {"output": ["o"]}, "x-weft": of}})


@pytest.mark.parametrize("way", COMPUTED)
def test_code_that_a_step_in_python_opens_by_a_computed_name_counts(place, way):
    write_computing(place, way, {"a loaded module": "used", "a path that is run": "one"}.get(way, "Small"))
    assert "one" in result(place)
    steps = place.folder / "steps.py"
    steps.write_text(steps.read_text() + "\n\ndef unused():\n    return 1\n")
    again = read_run(place.run().folder).steps[0].message
    assert again == "taken from the cache" or "exec(" in steps.read_text(), "what it does not use does not count"
    path = place.folder.joinpath(*COMPUTED[way][0].split(".")).with_suffix(".py")
    path.write_text(VALUE.replace("one", "three"))
    assert "three" in result(place)


def test_a_new_file_of_code_counts_in_a_folder_whose_code_a_step_executes(place):
    write_computing(place, "a text that is executed")
    assert "one" in result(place)
    (place.folder / "rules" / "two.py").write_text(VALUE.replace("one", "three"))
    assert "three" in result(place)


FLOW_THAT_LOOKS = """
from pathlib import Path

import weft


@weft.step(cache=True)
def ask(o: weft.Output):
    name = "".join(["da", "ta"])
    Path(o).write_text(str(Path(name, "y.csv").exists()))


@weft.pipeline
def flow():
    ask()
"""


@mounting
@pytest.mark.parametrize("change", ["its place", "the content"])
def test_another_file_system_counts_whose_path_only_a_script_names(place, change):
    for folder, text in (("raw", "one\n"), ("raw2", "two\n")):
        (place.folder.parent / folder).mkdir()
        (place.folder.parent / folder / "n.txt").write_text(text)
    settings = place.folder / "weft.toml"
    settings.write_text('[fs]\nown = "../raw"\n')
    (place.folder / "read.py").write_text("print(open('/weft-test' + '-own/n.txt').read(), end='')\n")
    mount = {"name": "own", "mount_path": "/weft-test-own", "read_only": True}
    place.write({"a": {**step("python3 read.py > {{o}}", "o"), "extra_fs": [mount]}})
    assert result(place) == result(place) == "one\n"
    assert place.ran() == {"a": 1}
    if change == "its place":
        settings.write_text(settings.read_text().replace("raw", "raw2"))
        weft = Commands(place.folder, {"WEFT_USER": "me"})
        raw = str(place.folder.parent / "raw")
        assert f"mount 0 own: place {raw} → {raw}2, compared with run-000001" in weft("plan", "run.yaml")[0]
    else:
        (place.folder.parent / "raw" / "n.txt").write_text("two\n")
    assert result(place) == "two\n"


@pytest.mark.parametrize("path", [".pipeline/last/made/a/o", "$(printf .pipe; printf line)/last/made/a/o"])
def test_the_last_outputs_of_another_pipeline_count(place, path):
    (place.folder / "made.yaml").write_text(json.dumps({"name": "made", "entry_points": {"a": MAKES}}))
    place.write({"a": step(f"cat {path} > {{{{o}}}}", "o")})
    weft = Commands(place.folder, {"WEFT_USER": "me"})
    weft("run", "made.yaml", "-q")
    assert result(place) == "one\n"
    (place.folder / "data" / "x.csv").write_text("two\n")
    weft("run", "made.yaml", "-q")
    assert result(place) == "two\n"
    place.ran()
    assert result(place) == "two\n"
    assert place.ran() == {}


MAKES = {"command": "cat data/x.csv > {{o}}", "artifacts": {"output": ["o"]}}
