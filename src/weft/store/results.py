"""Reuse of results: the identity of executions, and how a result is kept, found and taken.

A front end describes an execution (`Recipe`), without paths that only one run has. Its *leaves* are the inputs of the
result, each a name and a text: those known beforehand (the command with names in place of artifacts, parameters with
their types, declared environment, image, names, mounts, loop item), and the digests of the files it reads (input
artifacts, the paths of `fs_scope`). The key is the digest of all leaves. Equal leaves mean an equal key, whatever the
run, the step's name, the time or the machine; a leaf that differs is the reason why a step runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from weft.model.errors import NotFoundError, WeftError
from weft.store.content import SHARED, ContentStore
from weft.store.differences import shortened, tell_differences, unlike
from weft.store.digests import ABSENT, FOLDER, LEFT_OUT, Digester, read_listing
from weft.store.entries import ITEM_LEAF, CachedOutput, CacheIndex, Claim, Entry, index_of
from weft.store.folders import OpenFolders
from weft.store.left_files import LeftFiles
from weft.store.opened import (
    OPENED,
    WROTE,
    OpenedFiles,
    is_file_read,
    leaves_now,
    newly_set,
    opened_leaves,
    set_leaf,
)
from weft.store.unset_variables import unset_leaf
from weft.store.variables import variables_here

KEY_VERSION: Final = 1
CONTENT: Final = "content"
PADDLEFLOW: Final = "paddleflow"
"""The criterion for an unchanged file: its content, or, as in PaddleFlow, the time of its last change."""
NEVER: Final = -1.0
"""The validity of a result that never expires; with any other negative one, as in PaddleFlow, it expired at once."""
CLOCK_SLACK_S: Final = 2.0
"""Clocks of one network differ by less, so a record of a later time than this was made before a clock was set back."""
_TEXTS: Final = ("command", "option ")
"""The beginnings of the leaves known beforehand that are texts in which code may stand."""
_RUNS: Final = ("command", "kind", "option function")
"""The leaves known beforehand that say what a step runs; parameters change the first."""
_PARAMETER: Final = "parameter "
_DECLARED: Final = (_PARAMETER, "input name ", "output name ")
_MOST_LOOPS: Final = 8
_MOST_REPORTED: Final = 50


class Recipe(Struct, frozen=True, kw_only=True):
    """One execution whose result may be reused; as text it can be a parameter of a program.

    `static` are the leaves known beforehand. `inputs` maps names to the absolute paths of artifacts, `scopes` has pairs
    of a name for people and an absolute path, `outputs` maps names to absolute paths below `root`. A result is valid
    for `expires_s` seconds, for ever if `NEVER`. `store` is the folder for content. `task` counts the tasks of one
    step. `traced` is whether the files that it opens are inputs too: `opened`, known after it ran.
    """

    pipeline: str
    step: str
    run: str
    store: str
    root: str
    task: int = 0
    static: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scopes: Sequence[Sequence[str]] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    expires_s: float = NEVER
    mode: str = CONTENT
    traced: bool = False
    opened: OpenedFiles | None = None

    def to_json(self) -> str:
        """Return the recipe as one text, which costs a graph less than a tree of values."""
        return json.dumps({name: getattr(self, name) for name in _RECIPE})  # before it runs: nothing is opened

    @classmethod
    def from_json(cls, text: str, leaves: Mapping[str, str] | None = None, **changes: Any) -> Recipe:
        """Return the recipe of `to_json`, with more static `leaves` and other values of some fields."""
        document = _read_recipe(text)
        static = {**document["static"], **leaves} if leaves else document["static"]
        return cls(**{**document, "static": static, **changes})

    @property
    def static_key(self) -> str:
        """The digest of all leaves known beforehand."""
        return digest_of_leaves({**self.static, "mode": self.mode, "version": str(KEY_VERSION)})


_RECIPE: Final = tuple(name for name in Recipe.__struct_fields__ if name != "opened")


@lru_cache(maxsize=64)
def _read_recipe(text: str) -> Mapping[str, Any]:
    """Read the part that all tasks of a step share; callers must not change it."""
    found: dict[str, Any] = json.loads(text)
    return found


class Key(NamedTuple):
    """The key of a result, and its leaves."""

    key: str
    leaves: Mapping[str, str]


class Found(NamedTuple):
    """The answer of the cache: a usable result, or the reason why there is none."""

    entry: Entry | None
    reason: str = ""


class Why(NamedTuple):
    """Why there is no result: in one line, the compared run, and all differences."""

    reason: str
    run: str = ""
    differences: tuple[str, ...] = ()


class _Together:
    """The open stores of one thread while it looks up and takes results, and the folders of outputs."""

    def __init__(self) -> None:
        self.folders = OpenFolders()
        self.entries: dict[str, Entry] = {}
        self._locks = ExitStack()
        self._locked: set[str] = set()
        self._depth = 0

    def __enter__(self) -> _Together:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self.folders.close()
            self._locks.close()

    def has(self, store: str) -> bool:
        """Whether the store in a folder is locked, and so exists."""
        return store in self._locked

    def lock(self, store: ContentStore) -> None:
        """Lock a store until the end."""
        if (name := str(store.folder)) not in self._locked:
            self._locks.enter_context(store.lock())
            self._locked.add(name)


class ResultCache:
    """One index with its content stores; made by `open_cache`, shared by the whole process. Safe for threads.

    `wall` returns seconds since 1970.
    """

    def __init__(self, index: CacheIndex, wall: Callable[[], float]) -> None:
        self.index = index
        self.wall = wall
        self.bytes_read = 0
        self._stores: dict[str, ContentStore] = {}
        self._left = LeftFiles(index)
        self._items: dict[tuple[str, str, str], Mapping[str, str]] = {}
        self._own = threading.local()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep the stores of this thread open and locked, to take many results at once.

        No content is removed from the stores meanwhile, so the block should be short.
        """
        with _Together() as self._own.together:
            try:
                yield
            finally:
                self._own.together = None

    def foresee(self, keys: Iterable[str]) -> None:
        """Look up many keys at once, in advance of single lookups; only inside `together`.

        Later changes are detected: a result is verified when it is taken, and missing ones are looked up again.
        """
        together = self._at_hand()
        together.entries = self.index.entries_of(keys)
        stores: dict[str, list[CachedOutput]] = {}
        for entry in together.entries.values():
            stores.setdefault(entry.store, []).extend(entry.outputs.values())
        for store, outputs in stores.items():
            self.content(store).recall(outputs)

    def _at_hand(self) -> _Together:
        """Return the stores of `together`, or new ones for one result alone."""
        return getattr(self._own, "together", None) or _Together()

    def content(self, folder: str) -> ContentStore:
        """Return the content store in a folder."""
        store = self._stores.get(folder)
        if store is None:
            store = self._stores.setdefault(folder, ContentStore(Path(folder), self.index))
        return store

    # ---------------------------------------------------------------------------------------------------------- keys

    def key(
        self,
        recipe: Recipe,
        known: Mapping[str, CachedOutput] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Key:
        """Return the key of an execution, from the files at its paths now, or from the `known` digests of future ones.

        Errors as of `Digester.of`. NotFoundError: a scope is missing, which would not count as an input.
        """
        leaves = {**recipe.static, "mode": recipe.mode, "version": str(KEY_VERSION)}
        static = digest_of_leaves(leaves)
        dynamic: dict[str, str] = {}
        if not (recipe.inputs or recipe.scopes):
            return _key_of(static, leaves, dynamic)
        artifacts = Digester(self.index, self._now_ns, stopped=stopped)
        for name, paths in recipe.inputs.items():
            foreseen = [known[path] for path in paths if path in known] if known else []
            if recipe.mode == PADDLEFLOW:
                newest = max([artifacts.newest(paths), *(output.modified_ns for output in foreseen)])
                dynamic[f"input {name}"] = str(newest)
            elif foreseen:
                dynamic[f"input {name}"] = artifacts.join([output.digest for output in foreseen])
            else:
                dynamic[f"input {name}"] = artifacts.of_all(paths)
        self.bytes_read += artifacts.bytes_read
        if not recipe.scopes:
            return _key_of(static, leaves, dynamic)
        files = self._digester(stopped)
        for name, path in recipe.scopes:
            digest = str(files.newest([path])) if recipe.mode == PADDLEFLOW else files.of(path)
            if digest in (ABSENT, "-1"):
                what = "fs_scope names" if ":" in name else "the command names"
                raise NotFoundError(f"{what} {name}, but {path} does not exist")
            dynamic[f"file {name}"] = digest
        self.bytes_read += files.bytes_read
        return _key_of(static, leaves, dynamic)

    # ------------------------------------------------------------------------------------------------------- finding

    def find(self, key: str, expires_s: float = NEVER, root: str = "") -> Found:
        """Return the result of a key, if one is kept, complete, and not older than `expires_s`; changes nothing.

        `root` is the folder of the execution that it is for; with "" the files that its own one opened do not count.
        """
        together: _Together | None = getattr(self._own, "together", None)
        entry = (together.entries.pop(key, None) if together else None) or self.index.entry(key)
        if entry is None:
            return Found(None)
        problem = expired(entry, self.wall(), _end_of_validity(entry.completed, expires_s))
        if problem:
            return Found(None, problem)
        if root and (change := self._change_of_opened(entry, root)):
            return Found(None, f"{change}, compared with {entry.run}")
        problem = self._problem(entry)
        if problem.endswith(SHARED):
            runs = ", ".join(dict.fromkeys([entry.run, *self.index.users(key)]))
            problem += f"; what runs have of it changed too ({runs})"
        if problem:
            return Found(None, f"its result of {entry.run} cannot be used: {problem}")
        return Found(entry)

    def _change_of_opened(self, entry: Entry, root: str) -> str:
        """Return the first change of a file that the execution of a result opened, "" without any."""
        then = {name: text for name, text in entry.leaves.items() if name.startswith(OPENED)}
        if not then:
            return ""
        try:
            now = leaves_now(then, root, self._digester())
        except WeftError as error:
            return error.message
        changed = {name: text for name, text in now.items() if text != then[name]}
        changed = {name: text for name, text in changed.items() if not self._is_left_by_an_item(entry, name, text)}
        changed |= newly_set(entry.leaves, root, self._now_ns())
        return self.differences(then, {**then, **changed})[0] if changed else ""

    def changed_content(self, entries: Iterable[Entry], root: str) -> dict[str, bool]:
        """Return whether the content of each file that the executions of some results read is another one now.

        These are the files that they opened in the folder `root`, and those there that their commands name, by absolute
        path; none where times count instead. Errors as of `Digester.of`.
        """
        digester = self._digester()
        found: dict[str, bool] = {}
        counting = (entry.leaves for entry in entries if entry.leaves.get("mode") == CONTENT)
        for leaf, then in {pair for leaves in counting for pair in leaves.items()}:
            kind, _, name = leaf.partition(" ")
            path = os.path.normpath(os.path.join(root, name))
            if is_file_read(leaf, then):
                now = leaves_now({leaf: then}, root, digester)[leaf]
            elif kind == "file" and ":" not in name:  # else a scope, which may lie in another file system
                now = digester.of(path)
            else:
                continue
            found[path] = found.get(path, False) or now != then
        return found

    def _is_left_by_an_item(self, entry: Entry, name: str, text: str) -> bool:
        """Whether a file that the execution of a result made has the content that another item of its loop has left
        there, in a run with this result. Another step counts as a change: one between them may have read the file.
        """
        if not name.startswith(WROTE) or text == ABSENT:
            return False
        runs = {entry.run, *self.index.users(entry.key)}
        return self._left.has(entry.pipeline, entry.step, name, text, runs)

    def _digester(self, stopped: Callable[[], bool] = lambda: False) -> Digester:
        """Return what reads files of users, among which derived ones do not count."""
        return Digester(self.index, self._now_ns, ignore=LEFT_OUT, stopped=stopped)

    def _problem(self, entry: Entry) -> str:
        if not entry.outputs:
            return ""
        with self._at_hand() as together:
            if not together.has(entry.store) and not os.path.isdir(entry.store):
                return f"{entry.store} is gone"
            store = self.content(entry.store)
            together.lock(store)
            for name, output in entry.outputs.items():
                problem = store.problem(output)
                if problem:
                    return f"output {name}: {problem}"
        return ""

    def distrust(self, entry: Entry) -> None:
        """Verify every file of a result by its content at the next lookup."""
        store = self.content(entry.store)
        for output in entry.outputs.values():
            with suppress(NotFoundError):
                store.distrust(output)

    def take(self, entry: Entry, recipe: Recipe) -> None:
        """Put the outputs of a result at the paths of this execution.

        DiskFullError, ForbiddenError: not possible. NotFoundError, ConflictError: the result is incomplete.
        """
        if recipe.outputs:
            store = self.content(entry.store)
            with self._at_hand() as together:
                together.lock(store)
                for name, path in recipe.outputs.items():
                    if name not in entry.outputs:
                        raise NotFoundError(f"the result of {entry.run} has no output {name}")
                    store.put(entry.outputs[name], recipe.root, path, together.folders)
        self.index.used(entry.key, recipe.run, self.wall())

    def why(self, recipe: Recipe, leaves: Mapping[str, str]) -> Why:
        """Return why there is no result of a step: the first difference to the nearest kept one."""
        near = self._near(recipe, leaves)
        if not near:
            said = (
                "it never ran to a good end with a cache, its results were removed, or the message of its run says why"
            )
            return Why(f"no result of it is kept: {said}")
        near = [replace(entry, leaves=_named(entry.leaves)) for entry in near]
        listings: dict[str, dict[bytes, str]] = {}
        counts = [len(unlike(entry.leaves, leaves)) for entry in near]
        nearest = [entry for entry, count in zip(near, counts, strict=True) if count == min(counts)]
        closest = min(nearest, key=lambda entry: self._files_unlike(entry.leaves, leaves, listings))
        differences = self.differences(closest.leaves, leaves)
        if not differences:
            return Why(f"its result of {closest.run} is gone", closest.run)
        if unlike(closest.leaves, leaves) == [ITEM_LEAF]:  # what another item was made of explains nothing
            return Why(f"no result for the item {shortened(leaves[ITEM_LEAF])} is kept")
        left = len(differences) - 1
        more = f" (and {left} more)" if left > 1 else f", {differences[1]}" if left else ""
        return Why(
            f"{differences[0]}{more}, compared with {closest.run}", closest.run, tuple(differences[:_MOST_REPORTED])
        )

    def _near(self, recipe: Recipe, leaves: Mapping[str, str]) -> list[Entry]:
        """Return kept results of a step that its next one may be compared with.

        Other items of its own run are none of them: they tell nothing of what has changed since. Their number may
        exceed that of the newest results, so the one of the same item, and any of an earlier run, are among them.
        """
        near = self.index.near(recipe.pipeline, recipe.step)
        if not near:  # runs of the pipeline may have had another name
            near = [one for one in self.index.near_elsewhere(recipe.step) if _is_alike(one.leaves, recipe.static)]
        item = leaves.get(ITEM_LEAF)
        if item is None:
            return near
        near = [entry for entry in near if entry.run != recipe.run or entry.leaves.get(ITEM_LEAF) == item]
        before = self._items_before(recipe)
        wanted = before.get(item, "") or ("" if near else next(iter(before.values()), ""))
        other = self.index.entry(wanted) if wanted and all(entry.key != wanted for entry in near) else None
        return near if other is None else [*near, other]

    def _items_before(self, recipe: Recipe) -> Mapping[str, str]:
        """Return `CacheIndex.items_before` of a step, which is read once for all items of a run."""
        step = recipe.pipeline, recipe.step, recipe.run
        if step not in self._items:
            while len(self._items) >= _MOST_LOOPS:
                self._items.pop(next(iter(self._items)), None)
            self._items[step] = self.index.items_before(*step)
        return self._items[step]

    def _files_unlike(
        self, old: Mapping[str, str], new: Mapping[str, str], listings: dict[str, dict[bytes, str]]
    ) -> int:
        """Count the files that differ between the inputs of two executions; `listings` caches lookups."""
        todo = [(old[name], new[name]) for name in unlike(old, new) if name in old and name in new]
        count = 0
        while todo:
            one, two = todo.pop()
            if not one[:1] == two[:1] == FOLDER:
                count += 1
                continue
            try:
                before, after = (self._listed(digest, listings) for digest in (one, two))
            except WeftError:  # not a folder's digest, or removed
                count += 1
                continue
            count += len(before.keys() ^ after.keys())
            todo += [(was, after[name]) for name, was in before.items() if after.get(name, was) != was]
        return count

    def _listed(self, digest: str, listings: dict[str, dict[bytes, str]]) -> dict[bytes, str]:
        if digest not in listings:
            listings[digest] = {item.name: item.digest for item in read_listing(self.index.tree(digest))}
        return listings[digest]

    def differences(self, old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
        """Describe the differences between the leaves of two executions, changes by people first."""
        return tell_differences(old, new, self.index.tree)

    # ------------------------------------------------------------------------------------------------------- keeping

    def keep(self, recipe: Recipe, started: float, spoilt: str = "") -> str:
        """Keep the result of a succeeded execution, if it holds a claim; return why it is not kept, or "".

        `started` is its begin, in seconds since 1970; `spoilt` is a known reason not to keep it.
        """
        claim = None
        try:
            claim = self.index.claim_of(recipe.run, recipe.step, recipe.task)
            reason = "" if claim is None else spoilt or self._keep(recipe, claim, started)
        except WeftError as error:
            reason = error.message
        if reason and claim is not None:
            with suppress(WeftError):  # the next owner finds the lock free
                self.index.release([claim])
        return reason

    def _keep(self, recipe: Recipe, claim: Claim, started: float) -> str:
        # What the command names and was not there at the look-up, an earlier attempt of the step may have made.
        scopes = [scope for scope in recipe.scopes if f"file {scope[0]}" in claim.leaves]
        recipe = replace(recipe, scopes=scopes)
        gone = next((name for name, path in scopes if not os.path.lexists(path)), "")
        if gone:
            return f"{gone}, which it reads, was there when it began and is gone"
        now = self.key(recipe)
        if now.key != claim.key:
            return f"what it reads changed while it ran: {self.differences(claim.leaves, now.leaves)[0]}"
        opened: dict[str, str] = {}
        if recipe.opened is not None:
            environ = variables_here()
            places = [*recipe.outputs.values(), *(path for _, path in recipe.scopes)]
            places += [path for paths in recipe.inputs.values() for path in paths]
            declared = {
                name.partition(" ")[2] for name in recipe.static if name.startswith(("environment ", "secret "))
            }
            opened, reason = opened_leaves(
                recipe.opened, recipe.root, places, started, self._digester(), environ, declared
            )
            if reason:
                return reason
            opened |= set_leaf(environ, recipe.root)
            texts = [text for name, text in recipe.static.items() if name.startswith(_TEXTS)]
            opened |= unset_leaf(texts, recipe.opened.read, environ, declared)
        store = self.content(recipe.store)
        with store.lock():
            outputs: dict[str, CachedOutput] = {}
            for name, path in recipe.outputs.items():
                if not os.path.lexists(path):
                    return f"its output {name} was not made"
                outputs[name] = store.keep(path)
            completed = self.wall()
            entry = Entry(
                key=claim.key,
                store=recipe.store,
                pipeline=recipe.pipeline,
                step=recipe.step,
                run=recipe.run,
                started=started,
                completed=completed,
                expires=_end_of_validity(completed, recipe.expires_s),
                used=completed,
                size=sum(output.size for output in outputs.values()),
                leaves={**claim.leaves, **opened},
                outputs=outputs,
            )
            if not self.index.commit(entry, claim):
                return "another run has taken its place meanwhile"
            self._left.add(entry)
            return ""

    # ------------------------------------------------------------------------------------------------------ removing

    def collect(
        self,
        *,
        max_bytes: int | None = None,
        max_age_s: float | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> tuple[int, int, int]:
        """Remove results unused for `max_age_s`, then the least recently used until at most `max_bytes` remain.

        Pinned results stay, expired ones go. Files go before their rows, so that a full disk has room for the update.
        The content of a store with other users stays, and `note` reports it. Return the number of removed results, of
        removed files, and their bytes.
        """
        now = self.wall()
        self.index.put_back(now)
        entries = self.index.entries()
        total = 0
        gone = {}
        for entry in entries:  # the last used first
            old = max_age_s is not None and entry.used < now - max_age_s
            old = old or bool(expired(entry, now, entry.expires))
            if not entry.pinned and (old or (max_bytes is not None and total + entry.size > max_bytes)):
                gone[entry.key] = entry.completed
            else:
                total += entry.size
        folders = {entry.store for entry in entries} | set(self._stores) | self.index.left_stores()
        swept = []
        files = size = 0
        trees: set[str] = set()
        for folder in sorted(folders):
            store = self.content(folder)
            if not os.path.isdir(folder):
                continue
            with store.lock(exclusive=True):
                if others := store.other_users():
                    note(f"the content in {folder} stays, because other projects use it: {', '.join(others)}")
                    continue
                kept: set[str] = set()
                for entry in self.index.entries():  # read again: some were kept meanwhile
                    if gone.get(entry.key) != entry.completed:
                        gone.pop(entry.key, None)
                        for output in entry.outputs.values():
                            kept |= set(self._all(output.digest, trees))
                removed = store.sweep(kept)
                swept.append(folder)
            files, size = files + removed[0], size + removed[1]
        self.index.remove_unchanged(gone)
        self.index.forget_stores(swept)
        self.index.forget_trees(self._folders)
        self.index.forget_digests()
        return len(gone), files, size

    def _folders(self, entries: Iterable[Entry], claims: Iterable[Claim]) -> set[str]:
        """Return the digests of all folders in the outputs of results, and in what results and claims are made of."""
        trees: set[str] = set()

        def add(digests: Iterable[str]) -> None:
            for digest in digests:
                if digest[:1] == FOLDER and len(digest) == 65 and digest not in trees:
                    set(self._all(digest, trees))

        for entry in entries:
            add(output.digest for output in entry.outputs.values())
            add(entry.leaves.values())
        for claim in claims:
            add(claim.leaves.values())
        return trees

    def _all(self, digest: str, trees: set[str]) -> Iterator[str]:
        """Yield the digests of all files below one; the folders among them are put into `trees`."""
        todo = [digest]
        while todo:
            one = todo.pop()
            if one[:1] != FOLDER:
                yield one
                continue
            try:
                listing = self.index.tree(one)
            except NotFoundError:
                continue
            trees.add(one)
            todo += [item.digest for item in read_listing(listing)]

    def _now_ns(self) -> int:
        return int(self.wall() * 1e9)


_open: dict[Path, ResultCache] = {}
_opening = threading.Lock()


def open_cache(state: Path, wall: Callable[[], float]) -> ResultCache:
    """Return the cache of a state folder; one for the whole process."""
    with _opening:
        if state not in _open:
            _open[state] = ResultCache(index_of(state), wall)
        return _open[state]


def close_cache(cache: ResultCache) -> None:
    """Write the buffered records of a cache, and close it."""
    with _opening:
        for state in [state for state, opened in _open.items() if opened is cache]:
            del _open[state]
    cache.index.close()


def _named(leaves: Mapping[str, str]) -> dict[str, str]:
    """Return leaves without those of files that only the run has told."""
    return {name: text for name, text in leaves.items() if not name.startswith(OPENED)}


def _end_of_validity(completed: float, expires_s: float) -> float | None:
    return None if expires_s == NEVER else completed + expires_s


def expired(entry: Entry, now: float, end: float | None) -> str:
    """Return why a result that is valid until `end` (None: for ever) is too old at a time, "" if it is not."""
    if end is None:
        return ""
    if now >= end:
        return f"its result of {entry.run} expired {_ago(now - end)} ago"
    if entry.completed > now + CLOCK_SLACK_S:
        return f"its result of {entry.run} may have expired: the clock was set back since it was made"
    return ""


def _is_alike(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether a step of another pipeline seems to be the same one: what it declares has the same names, and it runs the
    same, but for the values of its parameters.
    """
    given = [{name: text for name, text in own.items() if name.startswith(_PARAMETER)} for own in (old, new)]
    names = [{name for name in own if name.startswith(_DECLARED)} for own in (old, new)]
    runs = [[own.get(name) for name in _RUNS[0 if given[0] == given[1] else 1 :]] for own in (old, new)]
    return names[0] == names[1] and runs[0] == runs[1]


def _key_of(static: str, leaves: Mapping[str, str], dynamic: Mapping[str, str]) -> Key:
    return Key(digest_of_leaves({"static": static, "dynamic": digest_of_leaves(dynamic)}), {**leaves, **dynamic})


def digest_of_leaves(leaves: Mapping[str, str]) -> str:
    """Return the digest of the JSON of the leaves: a list of pairs, sorted, in ASCII."""
    pairs = ", ".join([f"[{_quoted(name)}, {_quoted(text)}]" for name, text in sorted(leaves.items())])
    return hashlib.sha256(f"[{pairs}]".encode()).hexdigest()


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
