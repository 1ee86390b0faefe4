"""The inputs of an execution that nobody has named: what it opened while it ran.

The names of a command tell most of its inputs before it runs, but not all: a script may build the name of a file, a
library may read its own settings. So the result of a traced execution has one more leaf for each of these files, with
their content after the run. These leaves are no part of its key, since they are not known before: a result that is
found by its key is valid while they are unchanged.

A variable that was not set then may name another file now. So each result of a traced execution has the names of the
variables that were set and might name something in the project, and a further one that does is a change. So is one that
its code names (`unset_variables`), whatever its value.

The files that an execution has made in the project or in a persistent volume claim, and that are no outputs of it, are
a part of its result that the cache cannot bring back. So they have leaves too, and the result is valid while they are
there as it left them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from weft.model.patterns import late_pattern
from weft.store.alike_names import (
    CODE,
    LIBRARIES,
    TICK_S,
    ScriptTexts,
    digest_of_alike,
    endings_below,
    endings_in,
    endings_of,
    late_folders,
    late_names,
)
from weft.store.digests import ABSENT, DIGEST, LEFT_OUT, Digester
from weft.store.places import is_claimed, judged_path, project_around
from weft.store.variables import variables_here

READ: Final = "read "
LINK: Final = "link "
LOOKED: Final = "looked "
WROTE: Final = "wrote "
VARIABLE: Final = "variable "
SET: Final = "set variables"
UNSET: Final = "unset variables"
OPENED: Final = (VARIABLE, READ, LINK, LOOKED, WROTE, SET, UNSET)
"""The prefixes of these leaves: of variables that name opened files, of content, of links on the way to folders, of
files that the execution only looked at or that it wrote and left, and of the names of variables: those that might have
named something, and those that its code names and that were not set.

Names are relative to the folder of the execution, or absolute; a folder ends in `/`.
"""
LARGE_BYTES: Final = 256 * 2**20
"""A larger file counts by its size and its time of change: a step may read a part of a file of any size."""
_NAMES: Final = "n"
_STAMP: Final = "t"
_TARGET: Final = "l"
"""The first letters of digests of the names in a folder, of the size and time of a large file, and of a link."""
_THERE: Final = "+"
"""In place of the digest of a file that may change, as `tracing.THERE_IS` there."""
_MOST_LINKS: Final = 40
_OF_SESSIONS: Final = frozenset({"_", "CONDA_PREFIX", "OLDPWD", "PATH", "PWD", "PYTHONPATH", "VIRTUAL_ENV"})
"""Variables with places of shells and programs, which are others in each session; modules on PYTHONPATH are code."""
_OF_MACHINES: Final = frozenset(
    {"_", "COLUMNS", "HOME", "HOSTNAME", "LANG", "LINES", "LOGNAME", "OLDPWD", "PATH", "PWD"}
    | {"SHELL", "SHLVL", "TERM", "TMPDIR", "TZ", "USER"}
)
_FAMILIES_OF_MACHINES: Final = ("LC_", "PF_", "WEFT_", "XDG_")
_SEPARATOR: Final = late_pattern(r"[\s:,;=]+")
_SHARED: Final = frozenset({"/tmp", "/var/tmp", "/dev/shm"})
_HIDDEN: Final = "/."
_OF_TOOLS: Final = (
    *(".git", ".hg", ".svn", ".bzr", ".jj", ".weft", ".pipeline", ".idea", ".vs", ".vscode", ".ipynb_checkpoints"),
    *(".venv", ".tox", ".nox", ".eggs", ".conda", ".pixi", ".direnv", ".terraform", ".gradle", ".npm", ".yarn"),
    *(".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".pytype", ".hypothesis", ".parcel-cache", ".next"),
    *(".dvc/cache", ".dvc/tmp", ".snakemake", ".Trash"),
)
"""Hidden folders of the project that tools change by themselves; in others are settings that people write."""
_WEFT: Final = str(PurePath(__file__).parents[1])
_LOGS_OF_DATABASES: Final = ("-wal", "-journal", ".wal")
"""What SQLite and DuckDB put behind the name of a database for the file of changes that are not yet in it."""
_SHARED_MEMORY: Final = "-shm"
"""What SQLite puts behind the name of a database for the file by which those who have it open find these changes."""


class OpenedFiles(Struct, frozen=True):
    """What an execution opened, as absolute paths.

    `read` are the files that it read, ran or looked for, `written` those that it opened to write, made or named anew,
    `listed` folders. It entered the paths in `followed`, or read them as links. Of those written, it `made` all that is
    in some, and `updated` some: it read them before, or might read what was there before it. Some files it `linked` to
    other names, and it `removed_from` some folders what was in them. Of those that it read, it removed or renamed those
    `taken`. Of those `looked` at, it saw this first: "" where nothing was, "+" for what may change, or size and time.
    Of the Python code that it read, processes that it has started read that in `code_of_others`; that in `used_in_part`
    has leaves of its own, by what is used of it.
    """

    read: Collection[str] = ()
    written: Collection[str] = ()
    listed: Collection[str] = ()
    followed: Collection[str] = ()
    made: Collection[str] = ()
    updated: Collection[str] = ()
    linked: Collection[str] = ()
    removed_from: Collection[str] = ()
    taken: Collection[str] = ()
    code_of_others: Collection[str] = ()
    looked: Mapping[str, str] = field(default_factory=dict)
    used_in_part: Collection[str] = ()


def opened_where(opened: Mapping[str, Collection[str]], counts: Callable[[str], bool]) -> dict[str, Any]:
    """Return the fields of `OpenedFiles` with those of their paths that count."""
    return {
        name: {path: seen for path, seen in paths.items() if counts(path)}
        if isinstance(paths, Mapping)
        else [path for path in paths if counts(path)]
        for name, paths in opened.items()
    }


def opened_leaves(
    opened: OpenedFiles,
    root: str,
    known: Iterable[str],
    started: float,
    digester: Digester,
    environ: Mapping[str, str] = MappingProxyType({}),
    declared: Collection[str] = (),
) -> tuple[dict[str, str], str]:
    """Return the leaves of what an execution in the folder `root` opened, and why its result cannot be kept, or "".

    `known` are paths that count already or that the execution made, `started` is its begin, in seconds since 1970,
    `environ` are the variables that it inherited, of which those `declared` have leaves of their own. Left out are
    files that it changed (a database is opened to be written, and then perhaps only read), folders of the system, of
    libraries and of Weft, and hidden folders, except the files that it only read in those of the project that are not
    of tools. In folders that it wrote to or took code from, and in those around the
    project, only names count that end as those of files that it seems to have found there. Errors as of `Digester.of`.
    """
    place = _Place(root)
    covered = [path.rstrip("/") for path in known]
    inputs = _Inputs(opened, place, covered, started, digester)
    if reason := inputs.find():
        return {}, reason
    leaves = inputs.leaves
    looks = _looks(opened, place, covered)
    for path, seen in looks.items():
        read_as = leaves.get(READ + _name(path, root))
        if read_as is None or (read_as == ABSENT) != (seen == ABSENT):
            leaves[LOOKED + _name(path, root)] = seen
    named = {*inputs.named, *opened.followed, *looks}.difference(opened.written)
    leaves |= _naming_variables(environ, declared, named, place)
    return leaves | _left(opened, place, covered, started, digester), ""


class _Inputs:
    """The leaves of the files, links and folders that one execution read, as `opened_leaves` describes them."""

    def __init__(
        self, opened: OpenedFiles, place: _Place, covered: Sequence[str], started: float, digester: Digester
    ) -> None:
        self.opened, self.place, self.covered = opened, place, covered
        self.started, self.digester = started, digester
        self.leaves: dict[str, str] = {}
        self._ways = _Ways()
        self._written = set(opened.written)
        self._written_in = {*map(os.path.dirname, self._written), *opened.removed_from}
        self._updated, self._linked = set(opened.updated), set(opened.linked)
        self._followed, self._gone = set(opened.followed), set(opened.taken)
        self._read = {source_of(path) for path in opened.read}.difference(opened.used_in_part)
        self.named = self._read.union(opened.listed)
        self._paths = sorted({*self.named, *self._written, *self._followed})
        self._code_in = {os.path.dirname(path) for path in self._read if path.endswith(CODE)}
        self._walked = {os.path.dirname(path) for path in opened.listed if os.path.basename(path)[:1] == "."}
        self._imported = {source_of(path) for path in opened.read if source_of(path) != path}
        code = [path for path in self._read if path.endswith(".py")]
        self._scripts = ScriptTexts(path for path in code if path.startswith(f"{place.root}/"))
        self._naming = ScriptTexts((*code, *(path for path in opened.used_in_part if path.endswith(".py"))))

    def find(self) -> str:
        """Find the leaves; return why the result cannot be kept, or ""."""
        for path in self._paths:
            if reason := self._add(path):
                return reason
        return ""

    def _add(self, path: str) -> str:
        place, name = self.place, _name(path, self.place.root)
        if not place.counts(path, self.covered) or (path in self._written and place.hides(path)):
            return ""
        if path.endswith(_SHARED_MEMORY) and path.removesuffix(_SHARED_MEMORY) in self._paths:
            return ""
        try:
            found = os.stat(path)
        except OSError:
            found = None
        if reason := self._add_links(path, there=found is not None):
            return reason
        if found is None:
            if path not in self._written or _is_log_of_database(path, self._paths, self.opened.made):
                self.leaves[READ + name] = ABSENT
            return ""
        is_folder = stat.S_ISDIR(found.st_mode)
        if path not in self.named and (is_folder or path not in self._written):
            return ""
        if is_folder and self._lists_some(path):
            self._add_alike(path, found)
            return ""
        if is_folder and (not place.counts(f"{path}/") or place.hides(f"{path}/")):
            return ""
        if not is_folder and not stat.S_ISREG(found.st_mode):
            return ""
        return self._add_content(path, found)

    def _add_links(self, path: str, *, there: bool) -> str:
        """Add the links on the way to a path; return that one of them changed, or ""."""
        root = self.place.root
        links = [
            link for link in self._ways.links(path) if link.place not in self._written and self.place.counts(link.place)
        ]
        if changed := next((link.place for link in links if link.changed >= self.started), ""):
            return f"a link that it goes through changed while it ran: {_name(changed, root)}"
        if links and (path in self._followed or not there or any(_below(self._paths, self._ways.place(path)))):
            self.leaves |= {LINK + _name(link.place, root): link.target for link in links}
        return ""

    def _lists_some(self, path: str) -> bool:
        """Whether an execution that listed a folder seems to have looked for some of its files alone.

        Who lists hidden folders too goes through all that is there, and looks for more than modules.
        """
        is_walked = path in self._walked and (path == self.place.root or not _is_everybodys(path))
        is_searched = path in self._code_in or _is_shared(path, self.place.root)
        return path in self._written_in or (not is_walked and is_searched)

    def _add_alike(self, path: str, found: os.stat_result) -> None:
        """Add the names in a folder that end as those of files that the execution found there, if there are any."""
        place = self.place
        found_there = [one for one in _below(self._paths, path) if one in self._read and one not in self._written]
        candidates = [one for one in found_there if place.counts(one, self.covered)]
        # Python looks for a compiled module before it imports one, and not before it runs a text.
        named_there = {
            one for one in candidates if one.endswith(CODE) and (one in self._imported or self._naming.name(one))
        }
        others = (one for one in candidates if one not in named_there)
        endings = endings_in(path, others, self._gone, self._scripts)
        beside = (one for one in candidates if path == place.root or not one.startswith(f"{place.root}/"))
        endings += endings_below(path, beside, self._gone, self._scripts)
        if endings and (path == place.root or not (_is_everybodys(path) or place.hides(f"{path}/"))):
            late = late_names(path, found, self.started, self._written)
            late |= late_folders(path, endings, self.started, self._written_in.union(candidates))
            self.leaves[READ + _name(path, place.root) + "/"] = digest_of_alike(path, endings, late)

    def _add_content(self, path: str, found: os.stat_result) -> str:
        """Add a file, or all names in a folder; return that it has changed, or ""."""
        is_folder, name = stat.S_ISDIR(found.st_mode), _name(path, self.place.root)
        # A new name changes the inode, not what is in the file; so does the owner, which SQLite run by root sets anew.
        is_of_database = _is_log_of_database(path, self._paths, self.opened.made)
        at = found.st_mtime if path in self._linked or is_of_database else found.st_ctime
        changed = at >= self.started
        if path in self._updated and at >= self.started - TICK_S:  # its own first change may seem to be older
            when = "while it ran" if changed else "just before it began or while it ran"
            return f"it or another program changed what it reads {when}: {name}"
        if path in self._written and not is_of_database and found.st_ctime >= self.started - TICK_S:
            return ""
        if changed:
            what = "the names in a folder that it lists" if is_folder else "what it reads"
            return f"{what} changed while it ran: {name}"
        self.leaves[READ + name + "/" * is_folder] = _digest(path, found, self.digester)
        return ""


def changed_since(paths: Iterable[str], began: float, written: Collection[str] = ()) -> str:
    """Return the first file at or below some paths that changed at or after a time; "" if only those `written` did.

    The time is in seconds since 1970. What is no input of a result does not count, such as hidden folders of tools.
    """
    own = set(written)
    for path in paths:
        found = [(path, [], [""])] if not os.path.isdir(path) else os.walk(path)
        for folder, below, names in found:
            below[:] = sorted(name for name in below if os.fsencode(name) not in LEFT_OUT)
            for name in sorted(names):
                file = os.path.join(folder, name).rstrip("/")
                with suppress(OSError):
                    if file not in own and os.stat(file).st_ctime >= began:
                        return file
    return ""


def _naming_variables(
    environ: Mapping[str, str], declared: Collection[str], paths: Iterable[str], place: _Place
) -> dict[str, str]:
    """Return the leaves of variables that name one of some paths that count, or a folder that has one."""
    ordered = sorted(path for path in paths if place.counts(path))
    if not ordered:
        return {}
    return {
        VARIABLE + name: _value(value)
        for name, value in environ.items()
        if not (name in _OF_SESSIONS or name in declared)
        and any(_leads_to_one(named, ordered, place.root) for named in _places(value, place.root))
    }


def is_of_machine(name: str) -> bool:
    """Whether a variable says nothing about the work of a step: machines and shells set it for themselves."""
    return name in _OF_MACHINES or name.startswith(_FAMILIES_OF_MACHINES)


def is_of_session(name: str) -> bool:
    """Whether a variable has places of shells and programs, which are others in each session."""
    return name in _OF_SESSIONS


def is_of_weft(path: str) -> bool:
    """Whether a file is a part of Weft."""
    return path.startswith(f"{_WEFT}/")


def set_leaf(environ: Mapping[str, str], root: str) -> dict[str, str]:
    """Return the leaf of the variables that may name something in the project, by which `newly_set` tells others."""
    return {SET: " ".join(sorted({name for name, _ in _named_places(environ, root, _is_path)}))}


def newly_set(leaves: Mapping[str, str], root: str, now_ns: int) -> dict[str, str]:
    """Return leaves for the variables that name something in the project now and might not when a result was made.

    Those that were not set then and that its code names are among them. `leaves` are all of the result: variables that
    are declared have leaves of their own.
    """
    if SET not in leaves:
        return {}
    unset = leaves.get(UNSET, "").split()
    found = {VARIABLE + name: _digest_of_value(os.environ[name]) for name in unset if name in os.environ}
    known = set(leaves[SET].split(" "))
    return found | {
        VARIABLE + name: _value(os.environ.get(name, ""))
        for name, place in _named_now(root, now_ns)
        if name not in known
        and not any(kind + name in leaves for kind in (VARIABLE, "environment ", "secret "))
        and os.path.lexists(place)
    }


def _named_places(
    environ: Mapping[str, str], root: str, may_be: Callable[[str, str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield the variables that may name a place in the project that counts, with the place.

    Most of their values are words: they are no places by `may_be`, which is asked with a place and the project.
    """
    own = _Place(root)
    for name, value in environ.items():
        if name.isidentifier() and name not in _OF_SESSIONS and not is_of_machine(name):
            for place in _places(value, root):
                if place.startswith(f"{root}/") and may_be(place, root) and own.counts(place):
                    yield name, place


def _is_path(place: str, root: str) -> bool:
    """Whether a place in the project is there, or looks as if a step could still make it."""
    name = place[len(root) + 1 :]
    return "/" in name or "." in name or os.path.lexists(place)


def _begins_there(place: str, root: str) -> bool:
    """Whether the first folder of a place in the project is there."""
    return os.path.lexists(os.path.join(root, place[len(root) + 1 :].partition("/")[0]))


_named_before: tuple[Mapping[str, str] | None, str, int, list[tuple[str, str]]] = None, "", 0, []


def _named_now(root: str, now_ns: int) -> list[tuple[str, str]]:
    """Return the variables of this process that may name a place in the project whose first folder is there.

    They are found again only after a change of the variables, or of the names in the project's folder.
    """
    global _named_before
    environ = variables_here()
    try:
        changed = os.stat(root).st_mtime_ns
    except OSError:
        return []
    if environ is _named_before[0] and (root, changed) == _named_before[1:3]:
        return _named_before[3]
    found = list(_named_places(environ, root, _begins_there))
    if now_ns - changed > TICK_S * 1e9:  # else it may change again at the same time
        _named_before = environ, root, changed, found
    return found


@lru_cache(maxsize=1024)
def _places(value: str, root: str) -> tuple[str, ...]:
    """Return the paths that a variable may name: its value, the parts of a list, and words with a `/`."""
    words = {value, *value.split(os.pathsep), *(word for word in _SEPARATOR.split(value) if "/" in word)}
    return tuple({os.path.normpath(os.path.join(root, word)) for word in words})


def _leads_to_one(place: str, paths: Sequence[str], root: str) -> bool:
    """Whether a place is one of some sorted paths, or a folder with one."""
    at = bisect_left(paths, place)
    is_one = at < len(paths) and paths[at] == place
    return (is_one or next(_below(paths, place), "") != "") and not _is_shared(place, root)


def _value(value: str) -> str:
    """Return a variable as a leaf: a path as it is, and a digest of a list, which may have other things in it."""
    return _digest_of_value(value) if _SEPARATOR.search(value) else value


def _digest_of_value(value: str) -> str:
    return DIGEST + hashlib.sha256(os.fsencode(value)).hexdigest()


def _left(
    opened: OpenedFiles, place: _Place, covered: Collection[str], started: float, digester: Digester
) -> dict[str, str]:
    """Return the leaves of the files that an execution has written and left in the project or in a volume claim.

    Without them its result would only be a part of what it did. Logs do not count, and files that it changed or added
    to only by being there: several steps do that, and each would spoil the results of the others.
    """
    leaves: dict[str, str] = {}
    made = set(opened.made)
    others = sorted(path for path in made.union(opened.written) if not _is_covered(path, covered))
    if not others:
        return leaves
    project = place.project
    whole = _Place(project)
    for path in others:
        inside = path.startswith(f"{project}/")
        if not (inside or is_claimed(path)) or not whole.counts(path) or whole.hides(path):
            continue
        if _is_log(path[len(project) :] if inside else judged_path(path)):
            continue
        with suppress(OSError):
            found = os.lstat(path)
            if found.st_ctime >= started - TICK_S and (path in made or stat.S_ISREG(found.st_mode)):
                text = _digest_of_made(path, digester) if path in made else _THERE
                leaves[WROTE + _name(path, place.root)] = text
    return leaves


def _is_log_of_database(path: str, paths: Collection[str], made: Collection[str]) -> bool:
    """Whether a file would have changes of a database that is one of some paths, and that the execution has not made.

    Who opens the database makes the log and removes it at the end, unless another process has changes in it.
    """
    databases = [path.removesuffix(end) for end in _LOGS_OF_DATABASES if path.endswith(end)]
    return any(one in paths and one not in made and os.path.isfile(one) for one in databases)


def _is_log(path: str) -> bool:
    return path.endswith(".log") or "/log/" in path or "/logs/" in path


def _looks(opened: OpenedFiles, place: _Place, covered: Collection[str]) -> dict[str, str]:
    """Return the files of the project that an execution looked at, each with what it saw there first.

    What it has changed there since then makes the next lookup run it again: it would see something else. Its own logs
    do not count, nor a folder that it has made where nothing was and what lies in one.
    """
    looks = {}
    written = set(opened.written)
    for path, seen in sorted(opened.looked.items()):
        inside = path.startswith((f"{place.root}/", f"{place.project}/"))
        if not inside or not place.counts(f"{path}/", covered):  # it may be a folder of a tool
            continue
        if path in written and (os.path.isdir(path) or _is_log(path[len(place.project) :])):
            continue
        if not written.isdisjoint(map(str, PurePath(path).parents)):
            continue
        looks[path] = {"": ABSENT, _THERE: _THERE}.get(seen, _STAMP + seen)
    return looks


def _look(path: str, then: str) -> str:
    """Return what a look tells of a path now, as far as it told that before."""
    try:
        found = os.stat(path)
    except OSError:
        return ABSENT
    return f"{_STAMP}{found.st_size} {found.st_mtime_ns}" if then.startswith(_STAMP) else _THERE


def is_file_read(leaf: str, text: str) -> bool:
    """Whether a leaf is of a file that an execution read, and not of names in a folder or of what was not there."""
    return leaf.startswith(READ) and not leaf.endswith("/") and text != ABSENT


def files_written(leaves: Mapping[str, str], root: str) -> list[str]:
    """Return the absolute paths of the files that an execution in the folder `root` wrote and left."""
    return [os.path.join(root, leaf.removeprefix(WROTE)) for leaf in leaves if leaf.startswith(WROTE)]


def leaves_now(leaves: Mapping[str, str], root: str, digester: Digester) -> dict[str, str]:
    """Return leaves that `opened_leaves` has found, with what their files and variables are now.

    Errors as of `Digester.of`.
    """
    return {name: _now(name, then, root, digester) for name, then in leaves.items()}


def _now(name: str, then: str, root: str, digester: Digester) -> str:
    if name.startswith(VARIABLE):
        value = os.environ.get(name.removeprefix(VARIABLE))
        return ABSENT if value is None else _value(value)
    if name in (SET, UNSET):
        return then
    path = os.path.join(root, name.partition(" ")[2])
    if name.startswith(LOOKED):
        return _look(path, then)
    try:
        if name.startswith(LINK):
            return os.readlink(path)
        if name.startswith(WROTE):
            return _digest_of_made(path, digester) if then != _THERE else _THERE if os.path.lexists(path) else ABSENT
        if endings := endings_of(then):
            return digest_of_alike(path, endings)
        found = os.stat(path)
    except OSError:
        return ABSENT
    return _digest(path, found, digester)


def _digest(path: str, found: os.stat_result, digester: Digester) -> str:
    if stat.S_ISDIR(found.st_mode):
        names = sorted(name for name in os.listdir(os.fsencode(path)) if name not in LEFT_OUT and name[:1] != b".")
        return _NAMES + hashlib.sha256(b"\0".join(names)).hexdigest()
    if found.st_size > LARGE_BYTES:
        return f"{_STAMP}{found.st_size} {found.st_mtime_ns}"
    return digester.of(path)


def _digest_of_made(path: str, digester: Digester) -> str:
    """Return the digest of what a step has made: of a link its text, of a folder that was renamed all that is in it.

    OSError: it is gone. Errors as of `Digester.of`.
    """
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        return _TARGET + os.readlink(path)
    return digester.of(path) if stat.S_ISDIR(found.st_mode) else _digest(path, found, digester)


def is_python(path: str) -> bool:
    """Whether a path is that of a module of Python, compiled or not."""
    return path.endswith((".py", ".pyc"))


def _below(paths: Sequence[str], folder: str) -> Iterator[str]:
    """Yield those of some sorted paths that lie below a folder."""
    for at in range(bisect_left(paths, f"{folder}/"), len(paths)):
        if not paths[at].startswith(f"{folder}/"):
            return
        yield paths[at]


class _Link(NamedTuple):
    """A link at its own place, its text, and the time of its last change, in seconds since 1970."""

    place: str
    target: str
    changed: float


def _link_at(place: str) -> _Link | None:
    try:
        found = os.lstat(place)
        return _Link(place, os.readlink(place), found.st_ctime) if stat.S_ISLNK(found.st_mode) else None
    except OSError:
        return None


class _Ways:
    """The links on the way to paths; common beginnings are looked at once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, tuple[_Link, ...]]] = {"/": ("/", ())}

    def links(self, path: str) -> tuple[_Link, ...]:
        """Return the links that a path leads through, in order."""
        return self._follow(path, _MOST_LINKS)[1]

    def place(self, path: str) -> str:
        """Return a path without links."""
        return self._follow(path, _MOST_LINKS)[0]

    def _follow(self, path: str, left: int) -> tuple[str, tuple[_Link, ...]]:
        if path not in self._known:
            folder, name = os.path.split(path)
            real, links = self._follow(folder, left)
            place = os.path.join(real, name)
            link = _link_at(place) if left else None
            if link is None:
                self._known[path] = place, links
            else:
                end, more = self._follow(os.path.normpath(os.path.join(real, link.target)), left - 1)
                self._known[path] = end, (*links, link, *more)
        return self._known[path]


def _name(path: str, root: str) -> str:
    return os.path.relpath(path, root) if f"{path}/".startswith(f"{root}/") else path


def _is_shared(folder: str, root: str) -> bool:
    """Whether others put files into a folder: it lies above the execution's, or is one of temporary files or a home."""
    return f"{root}/".startswith(f"{folder.rstrip('/')}/") or _is_everybodys(folder)


def _is_everybodys(folder: str) -> bool:
    """Whether a folder is one of temporary files, or a home."""
    return folder in _SHARED or folder == os.path.expanduser("~")


def source_of(path: str) -> str:
    """Return the file that a compiled module of Python is made from: an unchanged one is only looked at."""
    folder, _, name = path.rpartition("/__pycache__/")
    return f"{folder}/{name.partition('.')[0]}.py" if folder and name.endswith(".pyc") else path


class _Place:
    """The folder of an execution, by which files count, and that of its project, which is looked for once."""

    def __init__(self, root: str) -> None:
        self.root = root

    @cached_property
    def project(self) -> str:
        return str(project_around(Path(self.root)))

    def counts(self, path: str, covered: Iterable[str] = ()) -> bool:
        """Whether a file may be an input by its place; none at or below `covered` paths may."""
        if _is_covered(path, covered) or is_of_weft(path):
            return False
        top = self._top(path)
        folder = _folder(path, top)
        if _HIDDEN in folder and (not top or _is_everybodys(top) or any(f"/{name}/" in folder for name in _OF_TOOLS)):
            return False
        return not any(part in folder for part in LIBRARIES)

    def hides(self, path: str) -> bool:
        """Whether a file lies in a hidden folder of the project, or outside of it."""
        return _HIDDEN in _folder(path, self._top(path))

    def _top(self, path: str) -> str:
        """Return the folder of the execution, or for hidden files that of its project, if a path lies in it, or ""."""
        if f"{path}/".startswith(f"{self.root}/"):
            return self.root
        return self.project if _HIDDEN in os.path.dirname(path) and path.startswith(f"{self.project}/") else ""


def _is_covered(path: str, covered: Iterable[str]) -> bool:
    """Whether a path is one of those `covered`, or lies below one."""
    return any(path == one or path.startswith(f"{one}/") for one in covered)


def _folder(path: str, top: str) -> str:
    """Return the folder of a file as it counts below another one, since the project may lie anywhere."""
    return f"{os.path.dirname(judged_path(path[len(top) :]))}/"
