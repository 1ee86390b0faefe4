"""Notices of a pipeline for its users before a run: what has no effect here, what may surprise, what can never work."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from weft.frontends.pipelines import paths
from weft.frontends.pipelines.caching import (
    SCOPE_HINT,
    UNSEEN,
    UNTOLD,
    FoundScripts,
    inherited_variables,
    may_be_traced,
    mentioned_files,
    must_be_traced,
    unknown_script,
    written_inputs,
)
from weft.frontends.pipelines.conditions import calculated_date
from weft.frontends.pipelines.kinds import load_kind
from weft.frontends.pipelines.parts import ITEM, joined, text_to_json
from weft.frontends.pipelines.resolved import ResolvedStep
from weft.frontends.pipelines.templates import as_text, pieces
from weft.model.errors import DefinitionError, WeftError
from weft.operators.tracing import can_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.frontends.pipelines.language import FsScope
    from weft.frontends.pipelines.resolved import Node

_BLANKS = {" ": "blanks", "\t": "tabs", "\n": "ends of lines"}
_IN_QUOTES = frozenset('$`"\\')
_ACTED_ON = {"'": frozenset("'"), '"': _IN_QUOTES, "": _IN_QUOTES | frozenset(" \t\n'*?[]{}()<>|&;#~!")}
"""The characters that a shell acts on inside single quotes, inside double quotes, and outside of quotes."""


def notes(
    nodes: Iterable[Node],
    folder: str,
    *,
    contained: bool = False,
    trace: bool = False,
    scripts: FoundScripts | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> list[str]:
    """Return notices for the user before a run on this machine, one line for each kind.

    `folder` is that of the pipeline's file. `contained`: steps run in the images that they name. `trace`: what a cached
    step opens counts, where this system tells it. `scripts` are those that `compile_run` has found, `settings` those of
    the command line for kinds of steps.
    """
    scripts = {} if scripts is None else scripts
    found = []
    nodes = list(nodes)
    steps = [node for node in nodes if isinstance(node, ResolvedStep)]
    images = list(dict.fromkeys(step.docker_env for step in steps if step.docker_env and not _passes_image(step)))
    if images and not contained:
        found.append(f"docker_env is ignored here: steps run on this machine, not in {_some(images)}")
    idle = [s.name for s in steps if _is_blank(s) and not s.disabled and not (contained and s.docker_env)]
    if idle:
        found.append(f"no command, so nothing is run here (PaddleFlow runs what the image starts): {_some(idle)}")
    ray = [step.name for step in steps if step.ray and not step.disabled]
    if ray:
        found.append(f"RAY_JOB_ENTRY_POINT runs as a command on this machine, not on a Ray cluster: {_some(ray)}")
    acted_on = {step.name: signs for step in steps if (signs := _acted_on(step))}
    if acted_on:
        signs = " ".join(_BLANKS.get(sign, sign) for sign in sorted(set("".join(acted_on.values()))))
        found.append(
            f"a shell acts on {signs} in the path {steps[0].cwd}, which commands name by templates "
            f'({_some(list(acted_on))}): write "$PF_INPUT_ARTIFACT_..." or "$PF_OUTPUT_ARTIFACT_...", in quotes'
        )
    found += filter(None, map(_calculates_date, nodes))
    watched = trace and can_trace()
    cached = [step for step in steps if step.cache.enable and not step.not_run]
    blind = [s for s in cached if not (watched and may_be_traced(s, folder)) or (contained and s.docker_env)]
    found += [text for step in cached if (text := _not_kept(step, folder, settings, is_blind=step in blind))]
    blind = [step for step in blind if not must_be_traced(step)]
    unseen = {step.name: unknown for step in blind if (unknown := unknown_script(step, folder, scripts))}
    if unseen:
        main = next((mount.name for step in steps for mount in step.mounts if mount.main), "main")
        shown = ", ".join(f"{name}: {command}" for name, command in unseen.items())
        found.append(
            f"the cache cannot see which files these commands use ({shown}): "
            f"name it under the step's `cache`, as in  fs_scope: [{{name: {main}, path: FILE}}]"
        )
    for step in blind:
        found += _mentioned(step, folder)
    for step in cached:
        found += _written(step, folder, scripts)
        if not (contained and step.docker_env) and (variables := inherited_variables(step)):
            found.append(
                f"{step.name} uses {_some(variables)} of the machine, which the cache does not count. To count it, "
                f'write in the step  env: {{{variables[0]}: "{{{{NAME}}}}"}}  with a parameter NAME'
            )
    found += _doubtful_scopes(cached)
    missing = unbound(steps)
    if missing:
        found.append(f"no folder is given for the file system {_some(missing)}: -f {missing[0]}=FOLDER names one")
    return found


def _item_or_name(item: str, kind: str, _name: str) -> str:
    """Return the text of a placeholder: the item of a loop, or a word for what is not known before the run."""
    return item if kind == ITEM else "unknown"


def _calculates_date(node: Node) -> str:
    """Return a notice of a date without quotes in the condition of a node; "" if there is none."""
    if isinstance(node, ResolvedStep):
        condition, items = text_to_json(node.condition), node.items or ()
    else:
        condition, items = node.params.get("condition", ""), ()
    for item in map(as_text, items or ("item",)):
        text = joined(condition, partial(_item_or_name, item))
        if wrong := calculated_date(text):
            return f"the condition of {node.name}: {wrong}"
    return ""


def _not_kept(step: ResolvedStep, folder: str, settings: Mapping[str, Any], *, is_blind: bool) -> str:
    """Return the notice that no result of a step will be kept, "" if it may be; for the arguments see `notes`.

    `is_blind`: what it opens cannot be told whatever its kind says.
    """
    if step.body is None or not must_be_traced(step):
        return ""
    unseen, why = load_kind(step.body.kind).unseen, ""
    assert unseen is not None
    with suppress(WeftError):  # what is wrong is told elsewhere
        why = unseen(step.body.portable, folder, step.cwd, settings)
    if not (why or is_blind):
        return ""
    main = next((mount.name for mount in step.mounts if mount.main), "main")
    return f"{step.name} keeps no result: {UNSEEN}, since {why or UNTOLD}. {SCOPE_HINT.format(main)}"


def _mentioned(step: ResolvedStep, folder: str) -> Iterator[str]:
    """Yield notices of the paths that the code of a step names and that do not count; `folder` as for `notes`."""
    inside: dict[str, list[str]] = {}
    outside: list[str] = []
    for file in mentioned_files(step, folder):
        place = os.path.normpath(os.path.join(step.cwd, file))
        scope = _scope_with(step, place)
        if scope is None:
            outside.append(place)
        else:
            inside.setdefault(scope[0], []).append(scope[1])
    for name, files in inside.items():
        yield (
            f"code of {step.name} names {_some(files)}, which the cache does not count: if the step reads it, "
            f"write under its `cache`  fs_scope: [{{name: {name}, path: {files[0]}}}]"
        )
    if outside:
        yield (
            f"code of {step.name} names {_some(outside)} outside of the project, which the cache does not count: "
            "if the step reads it, name it in the command or under `env`"
        )


def _written(step: ResolvedStep, folder: str, scripts: FoundScripts) -> Iterator[str]:
    """Yield notices of the files that a cached step writes although their old content matters; `folder` as above."""
    changed, appended = written_inputs(step, folder, scripts)
    if changed:
        yield (
            f"{step.name} writes {_some(changed)}, which it reads: no result is kept when that has changed. "
            "Let it write an output, as in  artifacts: {output: [NAME]}  and  > {{NAME}}"
        )
    if appended:
        yield (
            f"{step.name} adds to {_some(appended)}, which is no output of it: a result from the cache adds nothing. "
            f"To add each time, write in the step  cache: {{enable: false}}"
        )


def _scope_with(step: ResolvedStep, place: str) -> tuple[str, str] | None:
    """Return the file system in which a path lies, and the path in it; None for a path in none of the step's."""
    main = next((mount.name for mount in step.mounts if mount.main), "main")
    mounts = sorted(step.mounts, key=lambda mount: not mount.main)
    roots = [(mount.name, mount.root) for mount in mounts if mount.root is not None]
    for name, root in (*roots, (main, step.cwd)):
        if place.startswith(f"{root}/"):
            return name, os.path.relpath(place, root)
    return None


def _doubtful_scopes(steps: Iterable[ResolvedStep]) -> list[str]:
    """Return notices of scopes of cached steps that may mean other files than their author thinks, one for each."""
    scopes: dict[FsScope, list[ResolvedStep]] = {}
    for step in steps:
        for scope in step.cache.fs_scope:
            scopes.setdefault(scope, []).append(step)
    found = []
    for scope, users in scopes.items():
        names = ", ".join(step.name for step in users)
        if scope.name != "main" and any(scope.name not in {mount.name for mount in step.mounts} for step in users):
            found.append(
                f"fs_scope of {names} names the file system {scope.name}, but no other part of the file does: "
                "it is taken for the main file system"
            )
        if not scope.paths_given:
            found.append(
                f"fs_scope of {names} names no path of {scope.name}, so every file there counts: "
                "write  path: /  if this is meant"
            )
    return found


def unbound(nodes: Iterable[Node]) -> list[str]:
    """Return the names of mounted file systems without a folder."""
    steps = [node for node in nodes if isinstance(node, ResolvedStep) and not node.disabled]
    return list(dict.fromkeys(mount.name for step in steps for mount in step.mounts if mount.source is None))


def hopeless_mounts(nodes: Iterable[Node]) -> list[tuple[str, DefinitionError]]:
    """Return the errors of mounts that can never work on this machine, each with the image of its step."""
    steps = [node for node in nodes if isinstance(node, ResolvedStep) and node.mounts and not node.not_run]
    mounting = [step for step in steps if not all(mount.main for mount in step.mounts)]
    if not mounting:
        return []
    from weft.operators.mounts import SHELL, BindMount, impossible_mount  # most pipelines mount nothing

    checked, found = set(), []
    for step in mounting:
        program = SHELL if step.body is None else sys.executable
        first = not step.deps and step.folder.part == paths.ENTRY_POINTS
        key = (step.cwd, step.mounts, program, step.docker_env, first)
        if key not in checked:
            checked.add(key)
            mounts = [
                BindMount(m.source, m.mount_path, m.read_only, m.main) for m in step.mounts if m.source is not None
            ]
            error = impossible_mount(mounts, step.cwd, step.name, program, first=first)
            if error is not None:
                image = step.docker_env if step.body is None else ""
                found.append((image, DefinitionError(error.message, hint=error.hint)))
    return found


def _passes_image(step: ResolvedStep) -> bool:
    """Whether the kind of a step decides what stands for its image."""
    return step.body is not None and step.body.portable.get("image") == step.docker_env


def _is_blank(step: ResolvedStep) -> bool:
    return step.body is None and isinstance(step.command, str) and not step.command.strip()


def _acted_on(step: ResolvedStep) -> str:
    """Return the shell-active characters of the paths in a command, at the positions of its templates."""
    if step.body is not None or "{{" not in step.portable_command:
        return ""
    artifacts = {*step.places, *step.outputs}
    quote, found = "", set()
    for piece in pieces(step.portable_command):
        if not isinstance(piece, str):
            found |= set(step.cwd) & _ACTED_ON[quote] if piece.name in artifacts else set()
            continue
        for sign in re.findall(r"\\.|['\"]", piece, re.DOTALL):
            if not quote and sign in ("'", '"'):
                quote = sign
            elif sign == quote:
                quote = ""
    return "".join(found)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
