"""The dependencies of a step's result, in the form of the cache.

A key names neither the run, nor paths of one run, nor the step: only the inputs of the step.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from weft.frontends.pipelines.distributed import PLACEMENT
from weft.frontends.pipelines.kinds import leaves_of, load_kind
from weft.frontends.pipelines.named_files import NamedFiles
from weft.frontends.pipelines.parts import OutputFolder, delivered_paths, text_to_json, tuple_of
from weft.frontends.pipelines.scripts import Scripts, scripts_of, uncovered
from weft.frontends.pipelines.shell_variables import VARIABLE, assigned
from weft.frontends.pipelines.templates import USER_NAME, as_text
from weft.model.errors import WeftError
from weft.model.patterns import late_pattern
from weft.operators.tracing import can_trace
from weft.store.entries import ITEM_LEAF
from weft.store.opened import is_of_machine
from weft.store.places import OUTPUTS, project_around
from weft.store.results import CONTENT, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.parts import Filled
    from weft.frontends.pipelines.resolved import MountPoint, Node, ResolvedStep

RECIPE = "cache"
"""The program parameter with the recipe of a step."""
PACKAGES = "packages"
"""The program parameter with the environment of packages of a step: its kind, its file, and the folder for all."""
NAMED_FILES = "named_files"
"""The program parameter with the words of a step that name files by the item of its loop, or files made by then."""
STORE = f"{OUTPUTS}/.cas"
"""The folder of kept results, below the folder of the main file system that steps work in."""
_GAINS_PRIVILEGES = late_pattern(r"\b(?:sudo|su|doas|pkexec|podman|docker|apptainer|singularity|fusermount3?|newgrp)\b")
"""Commands with these words are not traced, since a traced one may be kept from gaining privileges."""
_PLACEMENT = PLACEMENT | {
    "PF_JOB_QUEUE_NAME",
    "PF_JOB_FLAVOUR",
    "PF_JOB_LIMIT_FLAVOUR",
    "PF_JOB_PRIORITY",
    "PF_JOB_NAMESPACE",
}
"""Variables that select where a step runs: another queue changes no result."""

_OPENS = "what it opens"
"""The leaf of a step of `must_be_traced`: a result without it was kept whatever the step opened."""
UNSEEN = "it is not known what it opened"
UNTOLD = "this is not told here"
_LOST = "a part of it was killed with its run, or opened too many files"
SCOPE_HINT = "List what it reads under its `cache`, as in  fs_scope: [{{name: {}, path: FILES}}]"

FoundScripts = dict[str, Scripts]
"""The scripts that one compilation has found, by the id of their step: to read them costs as much as the vertex."""


class CachePlace(Struct, frozen=True):
    """The cache of one run, by the run's id.

    `images` maps images to the digests of their content, as far as they are known. `trace` is whether files that steps
    open are inputs of their results.
    """

    run: str
    images: Mapping[str, str] = field(default_factory=dict)
    trace: bool = False


def describe(
    pipeline: Pipeline,
    step: ResolvedStep,
    place: CachePlace | None,
    folder: str = "",
    scripts: FoundScripts | None = None,
) -> Recipe | None:
    """Return the recipe of a step; None if the step neither uses nor fills the cache.

    `folder` is that of the pipeline's file; here and below, `scripts` are known ones, to which those of the step are
    added. The recipe of a looping step belongs to no item yet: `recipe_of` adds the
    item. The condition of an item is part of the recipe: a result exists only if the condition was true, and the
    condition has the same outcome for equal inputs.
    """
    if place is None or not step.cache.enable or step.not_run:
        return None
    static = static_leaves(pipeline, step, place.images.get(step.docker_env, step.docker_env), folder)
    if must_be_traced(step):
        static[_OPENS] = "counts"
    if step.condition:
        static["condition"] = _written(step.condition)
    scopes = _scopes(step)
    return Recipe(
        pipeline=pipeline.name,
        step=step.name,
        run=place.run,
        store=f"{step.cwd}/{STORE}",
        root=step.cwd,
        static=static,
        inputs={name: [p for p in places if isinstance(p, str)] for name, places in step.places.items()},
        scopes=[*scopes, *uncovered(_scripts(step, folder, scripts).files, [path for _, path in scopes], step.cwd)],
        outputs=dict(step.outputs),
        expires_s=float(step.cache.max_expired_time),
        mode=step.cache.mode,
        traced=place.trace and may_be_traced(step, folder),
    )


def may_be_traced(step: ResolvedStep, folder: str) -> bool:
    """Whether what a cached step opens may count as its input: PaddleFlow's rules and `sudo` forbid it.

    `folder` is that of the pipeline's file.
    """
    if step.cache.mode != CONTENT:
        return False
    texts = [step.portable_command]
    if step.body is not None and folder:
        texts += [text for text, _ in load_kind(step.body.kind).commands(step.body.portable, folder, step.cwd)]
    return not any(map(_GAINS_PRIVILEGES.search, texts))


def must_be_traced(step: ResolvedStep) -> bool:
    """Whether a result of a step is kept only if it is known what its program opened."""
    opens = step.body is not None and load_kind(step.body.kind).unseen is not None
    return opens and step.cache.mode == CONTENT and not step.cache.fs_scope


def lacks_opened(recipe: Recipe) -> bool:
    """Whether the result of a step of `must_be_traced` has ended without that."""
    return _OPENS in recipe.static and recipe.opened is None


def unseen_while_it_ran(params: Mapping[str, Any], why: str, *, traced: bool) -> str:
    """Return why it is not known what the program of a step of a kind opened, and what to write.

    `why` is what the program says, "" for nothing. `traced`: it ran so that this could be told.
    """
    unseen = load_kind(params["kind"]).unseen
    if unseen is not None and not why:
        with suppress(WeftError):
            why = unseen(params["portable"], params["pipeline_folder"], params["cwd"], params["settings"])
    why = why or (_LOST if traced and can_trace() else UNTOLD)
    return f"{UNSEEN}, since {why}. {SCOPE_HINT.format('main')}"


def _scripts(step: ResolvedStep, folder: str, known: FoundScripts | None) -> Scripts:
    if known is None:
        return scripts_of(step, folder)
    if step.id not in known:
        known[step.id] = scripts_of(step, folder)
    return known[step.id]


def named_files(step: ResolvedStep, folder: str, scripts: FoundScripts | None = None) -> dict[str, str]:
    """Return the program parameter that finds the files that are known when a task is looked up, {} without any.

    `folder` is that of the pipeline's file.
    """
    found = _scripts(step, folder, scripts).named
    if found is None:
        return {}
    counted = [path for _, path in _scopes(step)]
    return {NAMED_FILES: replace(found, left_out=[*found.left_out, *counted]).to_json()}


def unknown_script(step: ResolvedStep, folder: str, scripts: FoundScripts | None = None) -> str:
    """Return a command of a cached step without scopes whose files are known only when it runs; "" without one.

    `folder` is that of the pipeline's file.
    """
    if not step.cache.enable or step.not_run or step.cache.fs_scope:
        return ""
    return next(iter(_scripts(step, folder, scripts).unknown), "")


def mentioned_files(step: ResolvedStep, folder: str) -> list[str]:
    """Return paths that scripts of a cached step name and that neither count nor lie in a scope.

    They are relative to the step's folder; `folder` is that of the pipeline's file.
    """
    if not step.cache.enable or step.not_run:
        return []
    scopes = [path for _, path in _scopes(step)]
    return [name for name, _ in uncovered(scripts_of(step, folder, mentions=True).mentioned, scopes, step.cwd)]


def written_inputs(step: ResolvedStep, folder: str, scripts: FoundScripts | None = None) -> tuple[list[str], list[str]]:
    """Return the files that the commands of a cached step read and then write, and those that they add to.

    They are relative to the step's folder; `folder` is that of the pipeline's file. A file in a scope is read.
    """
    if not step.cache.enable or step.not_run:
        return [], []
    found = _scripts(step, folder, scripts)
    appended = {path for _, path in uncovered(found.appended, [path for _, path in _scopes(step)], step.cwd)}
    changed = [*found.changed, *(path for path in found.appended if path not in appended)]
    return [os.path.relpath(path, step.cwd) for path in changed], [
        os.path.relpath(one, step.cwd) for one in sorted(appended)
    ]


def inherited_variables(step: ResolvedStep) -> list[str]:
    """Return the variables of the machine that the command of a step names, and that no key has.

    Those of a session say nothing about the work, and a path counts by what the step opens there.
    """
    named = {name or other for name, other, _ in VARIABLE.findall(step.portable_command)}
    own = {*assigned(step.portable_command), *step.env}
    values = {name: os.environ.get(name, "") for name in named.difference(own) if not is_of_machine(name)}
    return sorted(name for name, value in values.items() if value and "/" not in value)


def _scopes(step: ResolvedStep) -> list[list[str]]:
    """Return the scopes of a step, each with its name and its absolute path."""
    folders = {point.name: point.root for point in step.mounts if point.root is not None}
    return [
        [f"{scope.name}:{path}", str(PurePosixPath(folders.get(scope.name, step.cwd), path.strip("/")))]
        for scope in step.cache.fs_scope
        for path in scope.paths
    ]


def static_leaves(pipeline: Pipeline, step: ResolvedStep, image: str, folder: str = "") -> dict[str, str]:
    """Return all inputs of a step by name, except the content of files and the item of its loop.

    `folder` is that of the pipeline's file; without it no file there is read, such as code.
    """
    static = {
        **_what_runs(step, folder),
        "image": image,
        "user": _written(step.env.get(USER_NAME, "")),
        **{f"parameter {name}": json.dumps(value) for name, value in step.parameters.items()},
        **{
            f"environment {name}": _written(value)
            for name, value in step.declared_env.items()
            if name not in _PLACEMENT
        },
        **(packages_leaf(step.packages.kind, step.packages.file) if step.packages is not None and folder else {}),
        **{f"secret {name}": known_as for name, known_as in step.secrets.items()},
        **{f"input name {name}": "" for name in step.places},
        **{f"output name {name}": "" for name in step.outputs},
    }
    mount = pipeline.main_fs
    # A file that names no file system uses the whole main file system too, but without a second path to it.
    if mount is not None and (mount.sub_path or mount.mount_path or _is_named(step.mounts[0].mount_path, static)):
        static[f"mount {mount.name}"] = json.dumps([mount.sub_path, mount.mount_path, mount.read_only])
    for number, point in enumerate(step.mounts[0 if pipeline.main_fs is None else 1 :]):
        fields = [point.sub_path, point.mount_path, point.read_only, _place_of(point, step.cwd)]
        static[f"mount {number} {point.name}"] = json.dumps(fields)
    return static


def _place_of(point: MountPoint, cwd: str) -> str:
    """Return where a file system is, from the folder that a step works in if both lie in one project."""
    if point.root is None:
        return ""
    project = str(project_around(Path(cwd)))
    return os.path.relpath(point.root, cwd) if f"{point.root}/".startswith(f"{project}/") else point.root


def packages_leaf(kind: str, file: str) -> dict[str, str]:
    """Return the part of a key that an environment of packages is. NotFoundError: its file is not there."""
    from weft.operators.environments import content  # few steps have any

    return {f"packages {kind}": content(kind, file)}


def _is_named(path: str, static: Mapping[str, str]) -> bool:
    return any(path in text for text in static.values())


def _what_runs(step: ResolvedStep, folder: str) -> dict[str, str]:
    if step.body is None:
        return {"command": step.portable_command}
    leaves = load_kind(step.body.kind).leaves if folder else leaves_of
    return {"kind": step.body.name, **leaves(step.body.portable, folder, step.cwd)}


def code_of(pipeline: Pipeline, nodes: Iterable[Node], folder: str, root: str) -> dict[str, dict[str, str]]:
    """Return the code digests of steps, by names of steps and of dags with dynamic items.

    `folder` is that of the pipeline's file, `root` the one that steps work in. A step with unreadable code is left out:
    it will fail, or another check reports it.
    """
    from weft.frontends.pipelines.resolved import ControlStep  # runs without Python steps do not need it

    inside = {name: step for name, step in pipeline.steps.items() if step.kind.value}
    found = {}
    for node in nodes:
        if isinstance(node, ControlStep):
            dag = node.params.get("dag")
            below = [(name, step) for name, step in inside.items() if dag and name.startswith(f"{dag}.")]
            leaves = {
                f"{name}: {leaf}": text
                for name, step in below
                for leaf, text in _code(pipeline.kinds[step.kind.value], step.options, folder, root).items()
            }
        else:
            leaves = {} if node.body is None else _code(node.body.kind, node.body.portable, folder, root)
        packages = None if isinstance(node, ControlStep) else node.packages
        if packages is not None:
            with suppress(WeftError):
                leaves = {**leaves, **packages_leaf(packages.kind, packages.file)}
        if leaves:
            found[node.name] = leaves
    return found


def _code(kind: str, options: Mapping[str, Any], folder: str, root: str) -> dict[str, str]:
    try:
        found = load_kind(kind).leaves(options, folder, root)
        return {name: text for name, text in found.items() if not name.startswith("o")}
    except WeftError:
        return {}


def changed_while_it_ran(params: Mapping[str, Any]) -> str:
    """Return which of the kind's leaves or of the packages changed since the recipe was made; "" if none did."""
    stored = params.get(RECIPE)
    if stored is None:
        return ""
    leaves: dict[str, str] = {}
    if "kind" in params:
        leaves |= load_kind(params["kind"]).leaves(params["portable"], params["pipeline_folder"], params["cwd"])
    if PACKAGES in params:
        leaves |= packages_leaf(*params[PACKAGES][:2])
    static = Recipe.from_json(stored).static
    return next((f"{name} changed while it ran" for name, text in leaves.items() if static.get(name) != text), "")


def recipe_of(
    params: Mapping[str, Any],
    index: int,
    item: Any = None,
    inputs: Mapping[str, list[str]] | None = None,
    lookup: Callable[[str], tuple[int, Mapping[str, Any]]] = lambda _: (0, {}),
) -> Recipe | None:
    """Return the recipe of a task from the parameters of its program and its item.

    `inputs` has the places of inputs that the graph did not know. Without it they are derived from the graph: `lookup`
    returns the number of tasks of a vertex and the parameters of its program. Files that the command names count as
    they are there now: earlier steps may have made them.
    """
    stored = params.get(RECIPE)
    if stored is None:
        return None
    own: dict[str, Any] = {"task": index}
    leaves = {}
    if "inputs" in params:
        found = inputs or {
            name: delivered_paths(places, lambda source: _helper_value(source, lookup))
            for name, places in params["inputs"].items()
        }
        own["inputs"] = dict(found)
    if "folder" in params:
        folder = OutputFolder(**params["folder"])
        own["outputs"] = {name: folder.path(name, index) for name in params["outputs"]}
        leaves[ITEM_LEAF] = json.dumps(item)
    recipe = Recipe.from_json(stored, leaves, **own)
    if NAMED_FILES in params:
        files = NamedFiles.from_json(params[NAMED_FILES]).of(as_text(tuple_of(item)))
        new = set(files).difference(path for _, path in recipe.scopes)
        recipe = replace(recipe, scopes=[*recipe.scopes, *uncovered(new, (), recipe.root)])
    return recipe


def _helper_value(source: str, lookup: Callable[[str], tuple[int, Mapping[str, Any]]]) -> Any:
    """Return the result of a helper vertex: a JOIN has places of outputs, a lister has the items of its step."""
    outputs = lookup(source)[1].get("outputs")
    if isinstance(outputs, dict):
        return {
            name: delivered_paths(places, lambda inner: _helper_value(inner, lookup))
            for name, places in outputs.items()
        }
    return range(lookup(source.rpartition("/")[0])[0])


def _written(text: Filled) -> str:
    return text if isinstance(text, str) else json.dumps(text_to_json(text))
