"""Which of the opened files are inputs of a result."""

import os
import time
from pathlib import Path, PurePath
from typing import Any

import pytest

from weft.store.digests import ABSENT, LEFT_OUT, Digester
from weft.store.opened import (
    LOOKED,
    READ,
    SET,
    VARIABLE,
    WROTE,
    OpenedFiles,
    changed_since,
    leaves_now,
    newly_set,
    opened_leaves,
    set_leaf,
)


class Nothing:
    def digest(self, device, inode, seen):
        return None

    def note(self, device, inode, seen, digest):
        pass

    def note_tree(self, digest, listing):
        pass


@pytest.fixture
def digester() -> Digester:
    return Digester(Nothing(), time.time_ns, ignore=LEFT_OUT)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("a", "d/b", "pk/__init__.py", ".git/HEAD", ".env", "venv/lib/python3.11/site-packages/m.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def leaves(root: Path, digester: Digester, known=(), started: float | None = None, environ=None, **opened: Any):
    """Return what `opened_leaves` does of paths below a folder; Python code among those `read` is imported."""
    looked = opened.pop("looked", {})
    executed = opened.pop("executed", [])
    imported = [PurePath(name) for name in opened.get("read", ()) if name.endswith(".py")]
    compiled = [str(name.parent / "__pycache__" / f"{name.stem}.cpython-311.pyc") for name in imported]
    opened["read"] = [*opened.get("read", ()), *compiled, *executed]
    paths = {kind: [os.path.normpath(os.path.join(root, name)) for name in names] for kind, names in opened.items()}
    at = time.time() + 60 if started is None else started
    return opened_leaves(
        OpenedFiles(**paths, looked=looked),
        str(root),
        [str(root / name) for name in known],
        at,
        digester,
        environ or {},
    )


def names(found) -> list[str]:
    assert found[1] == ""
    return [name.removeprefix(READ) for name in found[0]]


def test_files_count_by_their_place_in_the_project(root, digester, tmp_path):
    (tmp_path / "outside").write_text("")
    found = leaves(root, digester, read=["a", "d/b", str(tmp_path / "outside")])
    assert names(found) == [str(tmp_path / "outside"), "a", "d/b"]


def test_what_counts_already_or_was_changed_does_not(root, digester):
    found = leaves(root, digester, known=["d"], started=0, read=["a", "d/b", "gone"], written=["a", "gone"])
    assert names(found) == [f"{WROTE}a"]


def test_a_file_that_was_written_within_a_tick_of_the_clock_is_changed(root, digester):
    at = os.stat(root / "a").st_ctime + 0.004
    assert names(leaves(root, digester, started=at, written=["a"])) == [f"{WROTE}a"]
    assert names(leaves(root, digester, started=at, read=["a"])) == ["a"]


def test_a_file_that_was_opened_to_be_written_and_is_unchanged_counts(root, digester):
    assert names(leaves(root, digester, written=["a", "none"])) == ["a"]


def test_hidden_folders_and_packages_do_not_but_hidden_files_do(root, digester):
    found = leaves(root, digester, read=[".git/HEAD", ".env", "venv/lib/python3.11/site-packages/m.py"])
    assert names(found) == [".env"]


@pytest.mark.parametrize("folder", [".conf", ".dbt/deep", "d/.streamlit", ".dvc"])
def test_files_that_are_read_in_hidden_folders_of_the_project_count(root, digester, folder):
    (root / folder).mkdir(parents=True)
    for name in ("x.json", "own"):
        (root / folder / name).write_text("")
    written = [f"{folder}/own", f"{folder}/made"]
    opened: dict[str, Any] = {
        "read": [f"{folder}/{name}" for name in ("x.json", "none")],
        "written": written,
        "updated": written,
    }
    found = leaves(root, digester, **opened, made=written[1:], listed=[folder])
    assert names(found) == [f"{folder}/none", f"{folder}/x.json"]
    assert names(leaves(root, digester, started=0, written=written, listed=[folder])) == [], "what it writes does not"
    opened = {"written": [f"{folder}/made"], "read": [f"{folder}/x.json"], "listed": [folder]}
    assert names(leaves(root, digester, **opened)) == [f"{folder}/x.json"], "names do not, even like those found there"
    above = leaves(root / "pk", digester, read=[f"../{folder}/x.json"])
    assert names(above) == [f"{root}/{folder}/x.json"], "the project is more than the folder of the execution"


def test_files_in_the_copies_of_file_systems_at_urls_count(root, digester):
    (root / ".weft" / "fs" / "0" / "files").mkdir(parents=True)
    for name in ("files/x.csv", "manifest.json"):
        (root / ".weft" / "fs" / "0" / name).write_text("")
    copied = ".weft/fs/0/files/x.csv"
    assert names(leaves(root, digester, read=[copied, ".weft/runs/log"])) == [copied]


@pytest.mark.parametrize("folder", [".git", ".venv/x", ".dvc/cache", "d/.ipynb_checkpoints", "../.conf"])
def test_files_in_hidden_folders_of_tools_and_outside_of_the_project_do_not(root, digester, folder):
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "x.json").write_text("")
    assert names(leaves(root, digester, read=[f"{folder}/x.json", f"{folder}/none"])) == []


def test_the_project_is_looked_for_once_for_an_execution(root, digester, monkeypatch):
    asked = []

    def project_around(folder):
        asked.append(folder)
        return root

    monkeypatch.setattr("weft.store.opened.project_around", project_around)
    hidden = [f"../{folder}/x" for folder in (".conf", ".dbt", "d/.streamlit")]
    found = leaves(root / "pk", digester, read=hidden, written=[f"{one}2" for one in hidden], looked={"/.x/y": ""})
    assert len(found[0]) == len(hidden)
    assert asked.count(root / "pk") == 1


def test_files_in_hidden_folders_of_a_home_do_not_even_if_it_is_the_project(root, digester, monkeypatch):
    (root / ".conf").mkdir()
    monkeypatch.setenv("HOME", str(root))
    assert names(leaves(root, digester, read=[".conf/x.json", ".env"])) == [".env"]


def test_a_project_in_a_folder_of_packages_or_a_hidden_one_counts(tmp_path, digester):
    root = tmp_path / ".cache" / "lib" / "python3.11" / "site-packages" / "project"
    (root / "lib" / "python").mkdir(parents=True)
    (root / "lib" / "python" / "a").write_text("")
    assert names(leaves(root, digester, read=["lib/python/a", "../other"])) == ["lib/python/a"]


def test_a_compiled_module_stands_for_its_source(root, digester):
    assert names(leaves(root, digester, read=["pk/__pycache__/__init__.cpython-311.pyc"])) == ["pk/__init__.py"]


def test_names_in_a_folder_count_unless_it_was_written_to_or_has_code(root, digester):
    found = leaves(root, digester, listed=["", "d", "pk"], read=["pk/__init__.py"])
    assert names(found) == ["d/", "pk/__init__.py"]
    assert names(leaves(root, digester, listed=["d"], written=["d/new"])) == []


@pytest.fixture
def crowded(root: Path) -> Path:
    """A project that has code and data in one folder, and in its own."""
    for name in ("x.csv", "conf.json", "notes.md", "pk/x.csv", "pk/conf.json"):
        (root / name).write_text("")
    (root / "pk" / "m.py").write_text("open('conf.json')")
    return root


def since_now(root: Path) -> float:
    """Return a time that is later than all changes in a project, for a clock that moves in ticks."""
    made = max(os.stat(place).st_ctime for place in root.rglob("*")) + 0.1
    while time.time() < made:
        time.sleep(0.01)
    return made


@pytest.mark.parametrize("folder", [".", "pk", "d"], ids=["of the project", "with code", "that is written to"])
def test_names_like_those_that_were_found_in_a_crowded_folder_count(crowded, digester, folder):
    (crowded / "d" / "x.csv").write_text("")
    before = leaves(crowded, digester, listed=[folder], read=[f"{folder}/x.csv", "pk/m.py"], written=["d/sum.csv"])[0]
    assert f"{READ}{folder}/" in before
    for other in ("new.md", ".x.csv.swp", "new.csv.bak"):
        (crowded / folder / other).write_text("")
    assert leaves_now(before, str(crowded), digester) == before
    (crowded / folder / "new.csv").write_text("")
    after = leaves_now(before, str(crowded), digester)
    assert [name for name in before if after[name] != before[name]] == [f"{READ}{folder}/"]


def changed_by(root: Path, digester: Digester, before: dict[str, str], file: str) -> list[str]:
    """Return the leaves that a new file changes."""
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text("")
    after = leaves_now(before, str(root), digester)
    return [name for name in before if after[name] != before[name]]


NEW_FOLDERS = {
    "glob('store_*/sales.csv')": ("store_c/sales.csv", "store_c/other.csv"),
    "glob('store_*/*.csv')": ("store_c/any.csv", "store_c/notes.md"),
    "glob('store_*/*/sales.csv')": ("store_c/2025/sales.csv", "store_c/sales.csv"),
    "glob('store_*/2024/' + name)": ("store_c/2024/any.csv", "store_c/2025/any.csv"),
}


@pytest.mark.parametrize("pattern", NEW_FOLDERS)
def test_a_new_folder_like_those_that_were_found_in_a_crowded_folder_counts(root, digester, pattern):
    new, other = NEW_FOLDERS[pattern]
    found = ["/".join(["store_a", *(["2024"] if new.count("/") > 1 else []), "sales.csv"])]
    (root / "find.py").write_text(pattern)
    for path in (*found, "store_b/notes.md"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")
    before = leaves(root, digester, listed=["."], read=["find.py", *found])[0]
    assert changed_by(root, digester, before, other) == []
    assert changed_by(root, digester, before, ".hidden/" + new.partition("/")[2]) == []
    assert changed_by(root, digester, before, new) == [f"{READ}./"]


@pytest.mark.parametrize("text", ["open('store_a/sales.csv')", "os.listdir('store_a')"])
def test_a_folder_that_a_script_names_was_not_found_by_listing(root, digester, text):
    (root / "find.py").write_text(text)
    (root / "store_a").mkdir()
    (root / "store_a" / "sales.csv").write_text("")
    found = leaves(root, digester, listed=["."], read=["find.py", "store_a/sales.csv"])[0]
    assert f"{READ}./" not in found
    found = leaves(root, digester, listed=["."], read=["find.py", "other/none.csv", "pk/__init__.py"])[0]
    assert f"{READ}./" not in found, "nothing was there, or code"


def test_a_folder_that_others_fill_meanwhile_does_not_count_as_seen(root, digester):
    for name in ("store_a", "store_b"):
        (root / name).mkdir()
    (root / "store_a" / "sales.csv").write_text("")
    started = since_now(root)
    (root / "store_b" / "sales.csv").write_text("")
    (root / "store_a" / "own").write_text("")
    during = leaves(root, digester, started=started, listed=["."], read=["store_a/sales.csv"], written=["store_a/own"])[
        0
    ]
    now = leaves_now(during, str(root), digester)
    assert now[f"{READ}./"] != during[f"{READ}./"]
    (root / "store_b" / "sales.csv").unlink()
    assert leaves_now(during, str(root), digester) == during


@pytest.mark.parametrize("folder", [".", "pk"])
def test_a_file_that_a_script_names_was_not_found_by_listing(crowded, digester, folder):
    found = leaves(crowded, digester, listed=[folder], read=[f"{folder}/conf.json", "pk/m.py"])
    assert f"{READ}{folder}/" not in found[0]
    found = leaves(crowded, digester, known=[f"{folder}/x.csv"], listed=[folder], read=[f"{folder}/x.csv", "pk/m.py"])
    assert f"{READ}{folder}/" not in found[0], "what is named beforehand is not found by listing either"


def test_code_that_was_found_by_listing_and_not_imported_counts_as_other_files(crowded, digester):
    for name in ("one.py", "two.py"):
        (crowded / "d" / name).write_text("")
    imported = leaves(crowded, digester, listed=["d"], read=["d/one.py"])[0]
    assert f"{READ}d/" not in imported
    (crowded / "pk" / "m.py").write_text("open('d/' + 'one.py')")
    named = leaves(crowded, digester, listed=["d"], read=["pk/m.py"], executed=["d/one.py"])[0]
    assert f"{READ}d/" not in named
    assert (
        f"{READ}d/" not in leaves(crowded, digester, listed=["d"], used_in_part=["pk/m.py"], executed=["d/one.py"])[0]
    )
    executed = leaves(crowded, digester, listed=["d"], executed=["d/one.py"])[0]
    assert changed_by(crowded, digester, executed, "d/notes.md") == []
    assert changed_by(crowded, digester, executed, "d/three.py") == [f"{READ}d/"]


def test_code_that_is_used_in_part_has_no_leaf(crowded, digester):
    assert names(leaves(crowded, digester, read=["pk/m.py", "a"], used_in_part=["pk/m.py"])) == ["a"]


def test_a_script_names_a_file_by_a_whole_word(crowded, digester):
    (crowded / "pk" / "n").write_text("")
    found = leaves(crowded, digester, listed=["pk"], read=["pk/n", "pk/m.py"], written=["pk/merged"])
    assert f"{READ}pk/" in found[0], "the script has an n in other words"
    (crowded / "pk" / "m.py").write_text("open(f'{folder}/n')")
    found = leaves(crowded, digester, listed=["pk"], read=["pk/n", "pk/m.py"], written=["pk/merged"])
    assert f"{READ}pk/" not in found[0]


def test_names_like_those_of_files_that_were_taken_away_count(crowded, digester):
    taken = ["d/x.csv", "d/own.tmp"]
    opened: dict[str, Any] = {"listed": ["d"], "read": [*taken, "d/none.txt"], "written": ["d/own.tmp"]}
    before = leaves(crowded, digester, **opened, removed_from=["d"], taken=taken)[0]
    for other in ("new.tmp", "new.txt"):
        (crowded / "d" / other).write_text("")
    assert leaves_now(before, str(crowded), digester) == before
    (crowded / "d" / "new.csv").write_text("")
    after = leaves_now(before, str(crowded), digester)
    assert [name for name in before if after[name] != before[name]] == [f"{READ}d/"]


@pytest.mark.parametrize("folder", [".", "pk"])
def test_all_names_count_in_a_crowded_folder_that_the_execution_walks_through(crowded, digester, folder):
    (crowded / "pk" / ".hidden").mkdir()
    before = leaves(crowded, digester, listed=[folder, ".git", "pk/.hidden"], read=["pk/m.py"])[0]
    (crowded / folder / "new.md").write_text("")
    after = leaves_now(before, str(crowded), digester)
    assert after[f"{READ}{folder}/"] != before[f"{READ}{folder}/"]


def test_names_that_others_add_to_a_crowded_folder_meanwhile_do_not_count_as_seen(crowded, digester):
    def found(started: float):
        return leaves(crowded, digester, started=started, listed=["."], read=["x.csv"], written=["own.csv"])[0]

    before = found(since_now(crowded))
    started = since_now(crowded)
    (crowded / "own.csv").write_text("")
    (crowded / "of others.csv").write_text("")
    during = found(started)
    now = leaves_now(during, str(crowded), digester)
    assert now[f"{READ}./"] != during[f"{READ}./"], "the next lookup sees what the execution may not have seen"
    (crowded / "of others.csv").unlink()
    now = leaves_now(during, str(crowded), digester)
    assert now[f"{READ}./"] == during[f"{READ}./"] != before[f"{READ}./"]


def seen(root: Path, looked: dict[str, str]) -> dict[str, str]:
    return {os.path.normpath(root / name): state for name, state in looked.items()}


def test_files_that_were_only_looked_at_count_by_what_was_seen(root, digester, tmp_path):
    (tmp_path / "outside").write_text("")
    about = (root / "a").stat()
    looked = seen(
        root,
        {
            "a": f"{about.st_size} {about.st_mtime_ns}",
            "d": "+",
            "d/b": "+",
            "none": "",
            "other": "",
            "own": "",
            "own/x": "",
            "../outside": "+",
            ".git/HEAD": "+",
            ".git": "+",
            "__pycache__": "",
            "pk/__init__.py": "+",
            "out": "",
            "": "+",
        },
    )
    (root / "own").mkdir()
    before = leaves(root, digester, known=["out"], looked=looked, read=["pk/__init__.py"], written=["own"])[0]
    assert [name for name in before if name.startswith(LOOKED)] == [
        LOOKED + name for name in ("a", "d", "d/b", "none", "other")
    ]
    (root / "d" / "b").write_text("longer")
    (root / "d" / "new").write_text("")
    assert leaves_now(before, str(root), digester) == before, "it was only asked whether these are there"
    os.utime(root / "a", (1, 1))
    (root / "d" / "b").unlink()
    (root / "none").touch()
    after = leaves_now(before, str(root), digester)
    assert [name for name in before if after[name] != before[name]] == [LOOKED + name for name in ("a", "d/b", "none")]


def test_a_variable_that_names_a_file_that_was_only_looked_at_counts(root, digester):
    found = leaves(root, digester, environ={"FILE": "a"}, looked=seen(root, {"a": "+"}))
    assert set(found[0]) == {LOOKED + "a", VARIABLE + "FILE"}


def test_what_an_execution_changed_after_it_looked_counts_as_it_was(root, digester):
    (root / "own.log").touch()
    looked = seen(root, {"a": "", "d/b": "+", "own.log": ""})
    written = ["a", "d/b", "own.log"]
    before = leaves(root, digester, started=0, looked=looked, read=["a"], written=written, made=written)[0]
    after = leaves_now(before, str(root), digester)
    assert [name for name in before if after[name] != before[name]] == [LOOKED + "a"]


@pytest.mark.parametrize("end", ["-wal", "-journal", ".wal"])
def test_the_log_of_a_database_counts_that_is_gone_when_an_execution_ends(root, digester, end):
    found = leaves(root, digester, read=["a"], written=[f"a{end}", "a-shm"])
    assert found[0][f"{READ}a{end}"] == ABSENT
    assert names(found) == ["a", f"a{end}"]
    assert names(leaves(root, digester, read=["a"], written=["a.tmp", f"new{end}"])) == ["a"]
    assert names(leaves(root, digester, written=["a", f"a{end}"], made=["a"])) == ["a"], "it has made the database"
    (root / "a-shm").write_text("")
    found = leaves(root, digester, started=0, known=["a"], written=["a", "a-shm"], updated=["a-shm"])
    assert names(found) == ["wrote a-shm"], "its own changes there are no reason to keep no result"


def test_names_in_hidden_folders_and_those_of_libraries_do_not_count(root, digester):
    for folder in (".pipeline/run-000001", "__pycache__"):
        (root / folder).mkdir(parents=True)
    found = leaves(
        root, digester, listed=[".git", ".pipeline", "__pycache__", "venv/lib/python3.11/site-packages", "d"]
    )
    assert names(found) == ["d/"]


def test_files_that_were_looked_for_and_not_there_count_wherever_they_would_be(root, digester, tmp_path):
    found = leaves(root, digester, read=["none", "../none", ".git/none"], listed=["nowhere"], followed=["nolink"])
    assert found[0] == {READ + name: ABSENT for name in (f"{tmp_path}/none", "nolink", "none", "nowhere")}


def test_names_in_folders_that_others_use_do_not_count(root, digester, tmp_path):
    (tmp_path / "data").mkdir()
    found = leaves(root, digester, listed=["..", "/", "/tmp", os.path.expanduser("~"), str(tmp_path / "data")])
    assert names(found) == [f"{tmp_path}/data/"]


def test_links_on_the_way_to_a_folder_count_but_those_that_the_execution_made_do_not(root, digester):
    (root / "d" / "here").symlink_to(".")
    (root / "current").symlink_to("d/here")
    (root / "own").symlink_to("d")
    before, _ = leaves(root, digester, followed=["current", "own", "d"], read=["a"], written=["own"])
    assert before == {"link current": "d/here", "link d/here": ".", **leaves(root, digester, read=["a"])[0]}
    (root / "current").unlink()
    assert leaves_now(before, str(root), digester)["link current"] == ABSENT
    (root / "current").symlink_to("pk")
    assert leaves_now(before, str(root), digester)["link current"] == "pk"


def test_a_link_to_a_folder_counts_only_where_its_files_are_named_by_its_target(root, digester):
    (root / "current").symlink_to("d")
    assert names(leaves(root, digester, listed=["current"], read=["current/b"])) == ["current/", "current/b"]
    assert "link current" in leaves(root, digester, listed=["current"], read=["d/b"])[0]


def test_a_link_that_leads_nowhere_and_one_to_itself_count_by_their_texts(root, digester):
    (root / "none").symlink_to("gone")
    (root / "loop").symlink_to("loop")
    assert leaves(root, digester, followed=["none", "loop"])[0] == {
        "link loop": "loop",
        "link none": "gone",
        "read loop": ABSENT,
        "read none": ABSENT,
    }


def test_files_that_an_execution_made_and_left_are_a_part_of_its_result(root, digester):
    (root / "link").symlink_to("a")
    (root / "logs").mkdir()
    for name in ("logs/one", "train.log"):
        (root / name).write_text("")
    made = ["a", "link", "d", ".git/HEAD", "gone", "logs/one", "train.log"]
    before, _ = leaves(root, digester, started=0, written=made, made=made)
    assert list(before) == [WROTE + name for name in ("a", "d", "link")]
    assert leaves(root, digester, started=0, written=["a", "pk"])[0] == {f"{WROTE}a": "+"}, "added to or changed"
    assert leaves(root, digester, started=0, known=["d"], written=["d/b"], made=["d/b"]) == ({}, "")
    (root / "d" / "b").write_text("other")
    (root / "a").unlink()
    (root / "link").unlink()
    (root / "link").symlink_to("d")
    after = leaves_now(before, str(root), digester)
    assert [name for name in before if before[name] != after[name]] == list(before)
    assert after[WROTE + "a"] == ABSENT


def test_changes_since_a_time_are_those_of_files_that_count(root):
    paths = [str(root / "a"), str(root / "d"), str(root / "gone")]
    assert changed_since(paths, 0) == str(root / "a")
    assert changed_since(paths, 0, [str(root / "a")]) == str(root / "d" / "b")
    assert changed_since(paths, 0, [str(root / "a"), str(root / "d" / "b")]) == ""
    assert changed_since(paths, time.time() + 60) == ""
    (root / "d" / "__pycache__").mkdir()
    (root / "d" / "__pycache__" / "m.pyc").touch()
    assert changed_since([str(root / "d")], 0, [str(root / "d" / "b")]) == ""


def test_so_are_those_beside_its_folder_in_the_project_and_in_claims(root, digester, tmp_path):
    made = ["models/m", "logs/one", ".weft/claims/own/m", ".weft/claims/own/x.log", ".weft/runs/one", "step/m"]
    for name in (f"project/{one}" for one in made):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "outside").write_text("")
    paths = [*(str(root / name) for name in made), str(tmp_path / "outside")]
    found, _ = leaves(root / "step", digester, started=0, written=paths, made=paths)
    assert list(found) == [f"{WROTE}{root}/.weft/claims/own/m", f"{WROTE}{root}/models/m", f"{WROTE}m"]
    (root / ".git" / "HEAD").unlink()
    (root / ".git").rmdir()
    found, _ = leaves(root / "step", digester, started=0, written=paths, made=paths)
    assert list(found) == [f"{WROTE}{root}/.weft/claims/own/m", f"{WROTE}m"], "nothing says where the project ends"


def test_variables_that_name_what_was_opened_count(root, digester, monkeypatch):
    environ = {
        "FILE": "a",
        "FOLDER": str(root / "d"),
        "LIST": f"/none:{root}/d/b",
        "OPTIONS": f"--in={root}/a --secret=word",
        "PWD": str(root / "d"),
        "PROJECT": str(root),
        "OTHER": "pk",
        "MADE": "made",
        "WORDS": "not a word",
    }
    (root / "made").write_text("")
    before, _ = leaves(root, digester, environ=environ, read=["a", "d/b", "made"], written=["made"])
    variables = {name.removeprefix(VARIABLE): text for name, text in before.items() if name.startswith(VARIABLE)}
    assert list(variables) == ["FILE", "FOLDER", "LIST", "OPTIONS"]
    assert variables["FILE"] == "a"
    assert not any("word" in text for text in variables.values()), "a list may have more than paths in it"
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert leaves_now(before, str(root), digester) == before
    monkeypatch.delenv("FILE")
    monkeypatch.setenv("OPTIONS", "")
    after = leaves_now(before, str(root), digester)
    assert [name for name in before if before[name] != after[name]] == [VARIABLE + "FILE", VARIABLE + "OPTIONS"]


def test_a_variable_that_is_set_later_and_names_something_in_the_project_counts(root, digester, monkeypatch):
    for name in os.environ:
        monkeypatch.delenv(name)
    (root / "none").write_text("")
    before = set_leaf({"OLD": "pk:a", "LATER": "out/x", "WORD": "word", "PF_A": "a"}, str(root))
    assert before == {SET: "LATER OLD"}
    assert leaves_now(before, str(root), digester) == before
    before["environment OWN"] = "d"
    assert newly_set(before, str(root), time.time_ns()) == {}
    found = {
        "FILE": "none",
        "FOLDER": str(root / "d"),
        "LIST": f"/none:{root}/d/b",
        "WORD": "a",
        "OLD": "a",
        "LATER": "d/b",
        "OWN": "a",
        "HOME": "d",
        "WEFT_CONFIG": "d",
        "PATH": str(root / "d"),
        "PROJECT": str(root),
        "VENV": "venv/lib/python3.11/site-packages/m.py",
        "HIDDEN": ".git/HEAD",
        "ABOVE": "..",
        "ELSEWHERE": "/etc",
        "ABSENT": "gone",
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    after = newly_set(before, str(root), time.time_ns())
    assert {name.removeprefix(VARIABLE) for name in after} == {"FILE", "FOLDER", "LIST", "WORD"}
    assert after[f"{VARIABLE}FILE"] == "none"
    (root / "gone").write_text("")
    monkeypatch.delenv("FILE")
    assert VARIABLE + "ABSENT" in newly_set(before, str(root), time.time_ns())
    assert VARIABLE + "FILE" not in newly_set(before, str(root), time.time_ns())
    del before[SET]
    assert newly_set(before, str(root), time.time_ns()) == {}, "nothing is known of what was set then"


def test_what_changes_is_seen(root, digester):
    before, _ = leaves(root, digester, read=["a", "none"], listed=["d"])
    assert before[READ + "none"] == ABSENT
    assert leaves_now(before, str(root), digester) == before
    (root / "a").write_text("other")
    (root / "d" / "c").write_text("")
    (root / "none").write_text("")
    after = leaves_now(before, str(root), digester)
    assert [name for name in before if before[name] != after[name]] == [READ + "a", READ + "d/", READ + "none"]


def test_a_file_that_others_change_meanwhile_spoils_the_result(root, digester):
    found = leaves(root, digester, read=["a"], started=0)
    assert found == ({}, "what it reads changed while it ran: a")


def test_a_folder_whose_names_others_change_meanwhile_spoils_the_result(root, digester):
    found = leaves(root, digester, listed=["d"], started=0)
    assert found == ({}, "the names in a folder that it lists changed while it ran: d")
    assert names(leaves(root, digester, listed=["d"], removed_from=["d"], started=0)) == [], "it did that itself"


def test_a_link_that_others_change_meanwhile_spoils_the_result(root, digester):
    (root / "current").symlink_to("d")
    at = os.lstat(root / "current").st_ctime
    found = leaves(root, digester, read=["current/b"], started=at)
    assert found == ({}, "a link that it goes through changed while it ran: current")
    found = leaves(root, digester, read=["current/b"], written=["current"], started=at)
    assert found[1] != "a link that it goes through changed while it ran: current"


def test_a_file_that_is_opened_to_be_changed_and_changes_spoils_the_result(root, digester):
    found = leaves(root, digester, written=["a"], updated=["a"], started=0)
    assert found == ({}, "it or another program changed what it reads while it ran: a")
    assert names(leaves(root, digester, written=["a"], updated=["a"])) == ["a"]


def test_a_file_that_changed_just_before_it_was_opened_to_be_changed_spoils_the_result(root, digester):
    at = os.stat(root / "a").st_ctime
    found = leaves(root, digester, written=["a"], updated=["a"], started=at + 0.01)
    assert found == ({}, "it or another program changed what it reads just before it began or while it ran: a")


def test_a_new_name_that_the_execution_gives_to_a_file_does_not_change_it(root, digester):
    at = os.stat(root / "a").st_mtime + 1
    os.utime(root / "a", (at - 10, at - 10))
    (root / "twin").hardlink_to(root / "a")
    found = leaves(root, digester, read=["a", "twin"], written=["twin"], made=["twin"], linked=["a"], started=at - 5)
    assert names(found) == ["a", f"{WROTE}twin"]
    os.utime(root / "a")
    found = leaves(root, digester, read=["a"], linked=["a"], started=at - 5)
    assert found[1] == "what it reads changed while it ran: a"


def test_a_large_file_counts_by_size_and_time(root, digester, monkeypatch):
    monkeypatch.setattr("weft.store.opened.LARGE_BYTES", 3)
    (root / "a").write_text("large")
    before, _ = leaves(root, digester, read=["a"])
    assert digester.bytes_read == 0
    os.utime(root / "a", (1, 1))
    assert leaves_now(before, str(root), digester) != before
