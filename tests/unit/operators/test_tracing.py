"""What a traced command opens, and that it runs as any other command does."""

import os
import sys
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from weft.operators import looking
from weft.operators.call import CommandResult, CommandSpec, run_guarded
from weft.operators.tracing import can_trace
from weft.store.opened import OpenedFiles

pytestmark = pytest.mark.skipif(not can_trace(), reason="this system does not tell which files a command opens")


def run(folder: Path, text: str, **more) -> CommandResult:
    env = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
    return run_guarded(CommandSpec(text=text, env=env, cwd=folder, log=folder.parent / "log", traced=True, **more))


def opened(folder: Path, text: str, **more) -> OpenedFiles:
    result = run(folder, text, **more)
    assert result.ok, (folder.parent / "log").read_text()
    assert result.opened is not None
    return result.opened


def below(folder: Path, paths: Collection[str]) -> list[str]:
    return [os.path.relpath(path, folder) for path in paths if path.startswith(f"{folder}/")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "d").mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / "d" / "b").write_text("b")
    return folder


def test_reads_of_all_descendants_by_any_path(folder):
    found = opened(folder, f"cat a; (cd d; sh -c 'cat b'); cat ./d/../d/b {folder}/a; cat none || true")
    assert below(folder, found.read) == ["a", "d/b", "none"]


def test_writes_renames_and_links(folder):
    found = opened(folder, "echo > new; echo >> d/b; mv new newer; ln a twin; cat newer")
    assert below(folder, found.written) == ["d/b", "new", "newer", "twin"]
    assert below(folder, found.made) == ["new", "newer", "twin"]
    assert below(folder, found.read) == ["a", "new", "newer"]
    assert below(folder, found.linked) == ["a"]
    assert found.removed_from == (str(folder),)


def test_folders_that_are_listed_and_programs_that_are_run(folder):
    (folder / "tool").write_text("#!/bin/sh\necho tool")
    (folder / "tool").chmod(0o755)
    found = opened(folder, "ls d; ./tool")
    assert below(folder, found.listed) == ["d"]
    assert below(folder, found.read) == ["tool"]


def test_paths_relative_to_an_open_folder(folder):
    code = "import os; d = os.open('d', os.O_RDONLY); os.open('b', os.O_RDONLY, dir_fd=d)"
    assert "d/b" in below(folder, opened(folder, f'{sys.executable} -I -S -c "{code}"').read)


def test_paths_that_are_entered_and_links_that_are_read(folder):
    (folder / "l").symlink_to("d")
    found = opened(folder, "cd l; cat b; cd ..; readlink l; cat l/../a; cat d/../a")
    assert below(folder, found.followed) == ["l"]
    assert below(folder, found.read) == ["a", "d/b"]


def test_folders_links_and_removals(folder):
    (folder / "l").symlink_to("d")
    found = opened(folder, "mkdir new d || true; ln -s d l2; rm -f none d/b; rmdir new; ln -sT a l2 || true")
    assert below(folder, found.written) == ["l2", "new"]
    assert set(found.removed_from) == {str(folder), str(folder / "d")}


LOOKS = """
import ctypes, os

os.path.getsize("a"); os.lstat("d/b"); os.access("d", os.R_OK); os.path.exists("none")
folder = os.open("d", os.O_PATH)
os.stat("c", dir_fd=folder); os.access("e", os.R_OK, dir_fd=folder, effective_ids=True)
libc = ctypes.CDLL(None)
if hasattr(libc, "statx"):
    libc.statx(folder, b"x", 0, 0x7ff, ctypes.create_string_buffer(1024))
os.fstat(folder)
"""


def test_paths_that_are_only_looked_at(folder):
    (folder / "d" / "c").touch()
    (folder.parent / "look.py").write_text(LOOKS)
    found = opened(
        folder, f"{sys.executable} -I -S ../look.py; test -f d/f || test -e /etc/hostname", looks=looking.STATES
    )
    assert set(below(folder, found.looked)) >= {"a", "d", "d/b", "d/c", "d/e", "d/f", "d/x", "none"}
    assert not set(below(folder, found.read)) & {"a", "d/b", "none"}
    assert not [path for path in found.looked if path.startswith(("/etc", "/usr")) or "site-packages" in path]


@pytest.mark.parametrize("looks", [looking.EXISTENCE, looking.STATES])
def test_what_a_command_sees_first_is_told(folder, looks):
    os.utime(folder / "a", ns=(5, 5))
    command = "test -e a; test -e d; test -e none || echo more >> a; test -s a; echo > none; test -e none"
    found = opened(folder, f"{command}; echo > own; test -e own", looks=looks)
    seen = {os.path.relpath(path, folder): state for path, state in found.looked.items()}
    assert seen == {"a": "1 5" if looks == looking.STATES else "+", "d": "+", "none": ""}


def test_a_file_that_a_command_waits_for_is_there(folder):
    os.mkfifo(folder.parent / "turns")
    ended: list[OpenedFiles] = []
    waits = "while ! test -e flag; do cat ../turns; done"
    command = threading.Thread(target=lambda: ended.append(opened(folder, waits, looks=looking.EXISTENCE)))
    command.start()
    with (folder.parent / "turns").open("w"):  # once it has looked
        (folder / "flag").touch()
    command.join()
    assert ended[0].looked[f"{folder}/flag"] == "+"


def test_only_commands_that_are_asked_for_it_tell_what_they_look_at(folder):
    for looks in (looking.EXISTENCE, looking.NOTHING, looking.EXISTENCE):
        assert below(folder, opened(folder, "test -e a", looks=looks).looked) == ["a"] * (looks != looking.NOTHING)


def test_too_many_looks_leave_what_is_opened(folder):
    code = "import os; [os.path.exists(f'none{n}') for n in range(20_050)]; open('a')"
    found = opened(folder, f'{sys.executable} -I -S -c "{code}"', looks=looking.EXISTENCE)
    assert below(folder, found.read) == ["a"]
    assert not found.looked


def test_files_that_are_read_and_taken_away(folder):
    found = opened(folder, "cat a d/b; echo > new; cat new; mv a a2; rm d/b new; rm -f none")
    assert below(folder, found.taken) == ["a", "d/b", "new"]


def test_files_that_begin_with_an_open_and_those_that_are_changed(folder):
    (folder / "log").write_text("")
    code = "import os; open('a', 'r+'); open('log', 'a'); open('log2', 'a'); open('w', 'w'); open('w', 'r+')"
    code += "; os.open('db', os.O_RDWR | os.O_CREAT); os.open('d/b', os.O_RDWR | os.O_CREAT)"
    found = opened(folder, f'{sys.executable} -I -S -c "{code}"')
    assert below(folder, found.made) == ["db", "w"]
    assert below(folder, found.updated) == ["a", "d/b"]
    assert below(folder, found.written) == ["a", "d/b", "db", "log", "log2", "w"]


OVERWRITES = {
    "truncated": "open('a').read(); open('a', 'w')",
    "added to": "open('a').read(); open('a', 'a')",
    "renamed over": "open('a').read(); open('new', 'w'); os.replace('new', 'a')",
    "made anew": "open('a').read(); os.remove('a'); open('a', 'x')",
    "moved away and made anew": "os.rename('a', 'old'); open('a', 'w')",
    "not there": "os.remove('a'); subprocess.run(['cat', 'a']); open('a', 'w')",
    "by two processes": "subprocess.run(['cat', 'a']); open('a', 'w')",
}
OWN_FILES = {
    "truncated": "open('a', 'w'); open('a').read(); open('a', 'w')",
    "renamed over": "open('new', 'w'); os.replace('new', 'a'); open('a').read(); open('a', 'w')",
    "renamed after it was read": "open('new', 'w'); open('new').read(); os.replace('new', 'a')",
    "only read": "open('a').read(); open('new', 'w')",
    "compiled": "open('__pycache__/m.pyc').read(); open('new', 'w'); os.replace('new', '__pycache__/m.pyc')",
}


@pytest.mark.parametrize("way", OVERWRITES)
def test_a_file_that_is_read_and_then_written_is_updated(folder, way):
    found = opened(folder, f'{sys.executable} -I -S -c "import os, subprocess; {OVERWRITES[way]}"')
    assert below(folder, found.updated) == ["a"]


@pytest.mark.parametrize("way", OWN_FILES)
def test_a_file_that_is_written_before_it_is_read_is_not_updated(folder, way):
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "m.pyc").write_text("")
    found = opened(folder, f'{sys.executable} -I -S -c "import os; {OWN_FILES[way]}"')
    assert below(folder, found.updated) == []


CODE = """
import runpy, subprocess, sys, threading

thread = threading.Thread(target=lambda: exec(open("a.py").read()))
thread.start()
thread.join()
subprocess.run([sys.executable, "-I", "-S", "b.py"], check=True)
"""


def test_code_that_other_processes_read(folder):
    for name in ("a", "b"):
        (folder / f"{name}.py").write_text("")
    (folder / "c.py").write_text(CODE)
    found = opened(folder, f"exec {sys.executable} -I -S c.py")
    assert below(folder, found.read) == ["a.py", "b.py", "c.py"]
    assert below(folder, found.code_of_others) == ["b.py"]


def test_nothing_of_the_system_or_of_packages(folder):
    found = opened(
        folder, f'ls /proc /etc > /dev/null; cat /etc/hostname > /dev/null; {sys.executable} -c "import json"'
    )
    assert not [path for path in (*found.read, *found.listed) if path.startswith(("/etc", "/usr", "/proc"))]
    assert not [path for path in found.read if path.endswith("json/__init__.py")]


def test_what_descriptors_and_folders_of_processes_stand_for(folder):
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    code = """
import os
def of(name): return os.open(name, os.O_PATH)
open(f"/proc/self/fd/{of('a')}").read()
open(f"/dev/fd/{of('d')}/b").read()
open(f"/proc/{os.getpid()}/cwd/d/../c").read()
os.execve(of("tool"), ["tool"], os.environ)
"""
    (folder / "c").write_text("")
    (folder.parent / "code.py").write_text(code)
    found = opened(folder, f"{sys.executable} -I -S ../code.py; cat /dev/fd/0 < d/b")
    assert below(folder, found.read) == ["a", "c", "d/b", "tool"]
    assert below(folder, found.followed) == ["a", "d", "tool"]


def test_what_is_opened_through_links_that_the_command_makes_itself(folder):
    found = opened(
        folder, "ln -s a one; cat one; rm one; ln -s ../work/d one; cat one/b; echo > one/c; mv one two; cat two/c"
    )
    assert below(folder, found.read) == ["a", "d/b", "d/c", "one"]
    assert below(folder, found.written) == ["d/c", "one", "two"]


def test_the_interpreter_of_a_script_counts(folder):
    for name, first in (("tool", f"{folder}/d/one -x"), ("d/one", "../work/two"), ("two", "/bin/sh")):
        (folder / name).write_text(f"#! {first}\n")
        (folder / name).chmod(0o755)
    assert {"tool", "d/one", "two"} <= set(below(folder, opened(folder, "./tool").read))


def test_a_pipe_that_cannot_be_executed_holds_nobody_up(folder):
    os.mkfifo(folder / "pipe", 0o755)
    assert "pipe" in below(folder, opened(folder, "./pipe || true").read)


def test_folders_with_the_names_of_others_are_no_libraries(folder):
    names = ["lib/python/a", "lib/python3.11/a", "lib/python_tools/a", "site-packages-data/a", "opt/lib64/python/b"]
    installed = ["lib/python3.12/os.py", "lib/python3.12/a", "env/lib/python/site-packages/a", "dist-packages/a"]
    for name in (*names, *installed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    found = opened(folder, f"cat {' '.join((*names, *installed))}; cat {folder}/lib/python/a")
    assert below(folder, found.read) == sorted(names)


def test_what_lies_below_the_folder_of_the_command_counts_wherever_that_is(tmp_path):
    folder = tmp_path / "lib" / "python3.12" / "site-packages" / "work"
    folder.mkdir(parents=True)
    (folder.parents[1] / "os.py").write_text("")
    for place in (folder, folder.parent):
        (place / "a").write_text("")
    found = opened(folder, "cat a; cat ../a")
    assert found.read == (f"{folder}/a",)


def test_libraries_of_an_interpreter_do_not_count_but_its_folder_does(folder, tmp_path):
    for name in ("lib/python3.12/os.py", "lib/libpython.so", "data/a"):
        (tmp_path / "conda" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "conda" / name).write_text("")
    found = opened(folder, "cd ../conda; cat lib/libpython.so data/a lib/python3.12/os.py")
    assert [path for path in found.read if "conda" in path] == [f"{tmp_path}/conda/data/a"]


@pytest.mark.parametrize("path", ["/opt/none/x", "/library/x", "/run/media/none/x", "/run/none"])
def test_places_of_data_that_begin_as_those_of_the_system(folder, path):
    assert path in opened(folder, f"cat {path} || true").read


@pytest.mark.parametrize("path", ["/lib64/none", "/run/user/0/none", "/usr/none", "/etc/none"])
def test_places_of_the_system(folder, path):
    assert path not in opened(folder, f"cat {path} || true").read


def test_it_ends_as_any_other_command(folder):
    assert run(folder, "exit 3").exit_code == 3
    assert run(folder, "kill -9 $$").signal == 9
    assert run(folder, "while true; do cat a > /dev/null; done", timeout_s=0.3).cause == "timeout"


def test_many_processes_that_open_files_at_once(folder):
    (folder / "many").mkdir()
    for number in range(200):
        (folder / "many" / f"f{number}").write_text("")
    found = opened(folder, "for i in 1 2 3 4; do (for f in many/*; do cat $f; done) & done; wait")
    assert len(below(folder, found.read)) == 200


def test_a_command_that_cannot_start_says_so(folder):
    from weft.model.errors import TaskError

    spec = CommandSpec(argv=["./none"], env={}, cwd=folder, log=folder / "log", traced=True)
    with pytest.raises(TaskError, match=r"cannot start: \./none"):
        run_guarded(spec)


def test_a_command_whose_path_lacks_its_program_is_told_the_path(folder):
    from weft.model.errors import TaskError

    spec = CommandSpec(argv=["no-such-program"], env={"PATH": "/nope"}, cwd=folder, log=folder / "log")
    with pytest.raises(TaskError, match=r"cannot start: no-such-program is in no folder of its PATH, /nope") as caught:
        run_guarded(spec)
    assert caught.value.hint.startswith("Correct its name, install it, or add its folder to PATH")


def test_a_command_that_is_not_traced_tells_nothing(folder):
    spec = CommandSpec(text="cat a", env={"PATH": os.defpath}, cwd=folder, log=folder / "log")
    assert run_guarded(spec).opened is None


def test_commands_of_one_guardian_are_traced_one_by_one(folder):
    first, second = opened(folder, "cat a"), opened(folder, "cat d/b")
    assert below(folder, first.read) == ["a"]
    assert below(folder, second.read) == ["d/b"]


def test_a_command_after_a_traced_one_has_no_filter(folder):
    assert run(folder, "true").ok
    log = folder.parent / "plain"
    result = run_guarded(
        CommandSpec(text="grep Seccomp: /proc/self/status", env={"PATH": os.defpath}, cwd=folder, log=log)
    )
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Seccomp:"))
    assert result.ok
    assert log.read_text().split() == own.split()
