"""Task bodies of pipelines: a step prepares its outputs and runs its command; controls read artifacts and decide.

Outputs of a step are removed before each attempt and put aside after a failed one. Each attempt has its own log. The
environment of a step is the environment of its machine with the step's own variables on top. The graph cannot fix these
when it is made.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time
from contextlib import suppress
from copy import copy
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from weft.documents.problems import show
from weft.frontends.pipelines import conditions
from weft.frontends.pipelines.caching import (
    NAMED_FILES,
    PACKAGES,
    RECIPE,
    changed_while_it_ran,
    lacks_opened,
    recipe_of,
    unseen_while_it_ran,
)
from weft.frontends.pipelines.kinds import decoded, load_kind
from weft.frontends.pipelines.parameters import check_value
from weft.frontends.pipelines.parts import INPUT, ITEM, OUTPUT, SECRET, OutputFolder, delivered_paths, joined, tuple_of
from weft.frontends.pipelines.secrets import secret, texts_to_mask, without_sources
from weft.frontends.pipelines.states import NEWS, NOT_RUN, PROJECTION, WARNING
from weft.frontends.pipelines.templates import as_text, go_text
from weft.graph.task import does_prepare, pass_gate, prepares, resolve
from weft.model.errors import DiskFullError, RunCancelledError, TaskError, WeftError
from weft.model.ids import loop_item
from weft.model.patterns import late_pattern
from weft.model.program import Program, Style
from weft.operators.call import last_lines, run_command
from weft.operators.looking import code_in, looks_in
from weft.store.content import read_only_file
from weft.store.folders import make_folders, remove_at, safe_open
from weft.store.limits import limit_advice
from weft.store.opened import OpenedFiles, changed_since, opened_where
from weft.store.state import INNER
from weft.store.variables import variables_here

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from weft.graph.task import TaskContext, TaskInput
    from weft.graph.task_spec import JobVerdict
    from weft.store.results import Recipe

RUN, SKIPPED = "run", "skipped"
"""The branches of every choice: vertices on `RUN` run if it is chosen, and are skipped otherwise."""
MOUNTS = "mounts"
"""The program parameter with the mounts of a step."""
IMAGE = "image"
"""The program parameter with the image of a step and its engine: see `weft.operators.containers.in_container`."""
SECRETS = "secrets"
"""The program parameter with the names of all secrets of the pipeline."""
PUBLISH = "publish"
"""The program parameter with the destination of outputs: the main file system's URL, and the folder of its copy."""
RUN_STATE, RUN_ERROR, FAILED_STEPS = "WEFT_RUN_STATE", "WEFT_RUN_ERROR", "WEFT_FAILED_STEPS"
"""The variables of the step of `post_process` that tell how the run has ended."""
INCOMPLETE = ".incomplete"
"""The suffix of the outputs of a failed attempt; names of outputs have no dots."""
_FIRST = "first-inputs"
"""The file beside the runs of a step of a kind with the key of what its first attempt had, as far as it was known."""
MAX_LIST_BYTES = 1024 * 1024
MAX_CONTENT_BYTES = 1024
"""The largest artifact in bytes that a loop or a condition reads."""

_LONGEST_ERROR = 8_192
_DENIAL = late_pattern(r"(?i)permission denied|read-?only")
_DENIALS = 1000
"""The last lines of a log in which a denied permission is looked for."""
_OWN_PREFIX = "WEFT_"
_OF_ANOTHER_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "PYTHONHOME", "__PYVENV_LAUNCHER__"})


@prepares
def run_step(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> Any:
    """Run one attempt of a step, or of one item of its loop (style TASK).

    Return the result of `weft.operators.call.run_command`, or of the program of the step's kind.

    Parameters: `command`, `cwd`, `env` (added to the environment of this process), `logs` and `processes` (folders for
    the log `<step>[.<item>].<attempt>.log` and for the record of processes), `outputs` (paths below `cwd` that are
    removed and whose parents are created; names of a loop's outputs, for `folder`), `cache` (the `Recipe` of the
    result), `publish` (the URL that outputs are sent to, and the folder with its copy), `mounts` (each: source, mount
    path, read-only, optional, and the path of the source below its file system), `secrets` (names; no step inherits the
    variables that they are looked up in, and logs mask their values), and further fields of `CommandSpec`.
    `inputs` has the places of artifacts that the graph did not know, `condition` the condition of an item. A step of a
    kind has `kind`, `with`, `portable`, `parameters` and `pipeline_folder` in place of a command (see
    `kinds.StepKind`).

    The event `WARNING` reports a missing output, a result that was not kept, a missing mount, and an incomplete log;
    `NEWS` an environment that is made, or what a kind tells.
    Errors are those of `run_command` or of the kind. TaskError or DiskFullError: the place of an output cannot be
    created. TaskError: a folder cannot be mounted, or an output cannot be sent.
    """
    own = dict(ctx.params)
    name, values = _values(ctx, inputs, own)
    outputs = list(values.outputs.values())
    recipe = recipe_of(own, ctx.index, ctx.item, values.inputs)
    for key in (RECIPE, NAMED_FILES):
        own.pop(key, None)
    started = time.time()
    if not ctx.cancelled() and "condition" in own and (false := _false(own.pop("condition"), values, name)):
        ctx.emit(NOT_RUN, false)
        if recipe is not None:  # release the claim: no result will follow
            ctx.keep_result(recipe, started, false)
        return {"skipped": True}
    own.pop("condition", None)
    logs, processes = own.pop("logs"), own.pop("processes")
    log, attempt = _log_name(ctx, logs)
    if not ctx.cancelled():
        _enter_run(processes, name)
        make_room(own["cwd"], outputs, name)
    if "kind" not in own:
        own["command"] = joined(own["command"], values.of)
    if ctx.verdict is not None:
        own["env"] = {**own["env"], **end_of_run(ctx.verdict)}
    env = _set_environment(own, values)
    if PACKAGES in own and not ctx.cancelled():
        _enter_packages(ctx, own, env, name, os.path.join(logs, f"{log}.{attempt}.log"))
    warnings = _surround(own, env, name) if (MOUNTS in own or IMAGE in own) and not ctx.cancelled() else []
    own["name"], own["log"], own["record"] = (
        name,
        os.path.join(logs, f"{log}.{attempt}.log"),
        os.path.join(processes, f"{log}.{attempt}"),
    )
    own["timed"] = True
    own["traced"] = recipe is not None and recipe.traced and not own.get("prefix")
    if recipe is not None and own["traced"]:
        own["looks"] = looks_in((own.get("command", ""), *code_in(path for _, path in recipe.scopes)))
    if "kind" in own:
        own["variables"], own["runs"] = env, os.path.join(own.pop("run"), INNER, log)
    for key in ("outputs", "folder", "inputs", IMAGE, MOUNTS, PUBLISH, PACKAGES):
        own.pop(key, None)
    step = copy(ctx)
    step.params, step.parallelism = own, 1  # the log and the record already have the number of the item
    first = _first_inputs(own["runs"], recipe) if "kind" in own and recipe is not None else ""
    try:
        result = _run_kind(step, inputs, values) if "kind" in own else run_command(step, inputs)
        opened = result.pop("opened", None) if isinstance(result, dict) else None
        unseen = result.pop("unseen", "") if isinstance(result, dict) else ""
        began = result.pop("began", started) if isinstance(result, dict) else started
        spoilt = result.pop("spoilt", "") if isinstance(result, dict) else ""
        warnings += result.pop("warnings", ()) if isinstance(result, dict) else ()
        warnings += _shortfalls(ctx, own, outputs, result)
        if denied := _denied(own["log"], values.inputs):
            warnings.append(denied)
    except BaseException as error:
        if isinstance(error, TaskError) and (denied := _denied(own["log"], values.inputs, outputs)):
            error.hint = f"{denied}. {error.hint}"
        # On a cluster this attempt may outlive its node's connection, while another one works in the same place.
        if not os.path.lexists(os.path.join(logs, f"{log}.{attempt + 1}.log")):
            put_aside(own["cwd"], outputs)
        raise
    if recipe is not None:
        if opened is not None:
            recipe = replace(recipe, opened=_opened(opened, os.path.dirname(processes)))
        spoilt = spoilt or changed_while_it_ran(ctx.params)
        if not spoilt and began < started:
            spoilt = _changed_between(recipe, first, began)
        if not spoilt and lacks_opened(recipe):
            spoilt = unseen_while_it_ran(ctx.params, unseen, traced=recipe.traced)
        reason = ctx.keep_result(recipe, min(started, began), spoilt)
        if reason:
            warnings.append("its result is not kept" if reason in warnings else f"its result is not kept: {reason}")
    if warnings:
        ctx.emit(WARNING, "; ".join(warnings))
    return result


def _first_inputs(runs: str, recipe: Recipe) -> str:
    """Return the key of what was known before the first attempt of a step whose attempts go on from one another."""
    os.makedirs(runs, mode=0o700, exist_ok=True)
    if not os.path.lexists(os.path.join(runs, _FIRST)):
        with safe_open(runs, _FIRST, mode="w") as file:
            file.write(recipe.static_key)
    with safe_open(runs, _FIRST) as file:
        return str(file.read())


def _changed_between(recipe: Recipe, first: str, began: float) -> str:
    """Return why the result of a step is also that of earlier attempts with other inputs, or ""."""
    if first != recipe.static_key:
        return "it goes on from an attempt with other code or parameters"
    written = () if recipe.opened is None else recipe.opened.written
    named = [path for _, path in recipe.scopes]
    artifacts = [path for paths in recipe.inputs.values() for path in paths]
    changed = changed_since([*artifacts, *named], began, written)
    name = os.path.relpath(changed, recipe.root) if changed.startswith(f"{recipe.root}/") else changed
    return f"{name} changed after the attempt that it goes on from had begun" if changed else ""


def _opened(said: Mapping[str, Collection[str]], run: str) -> OpenedFiles:
    """Return what a step opened outside of the folder of its run."""
    return OpenedFiles(**opened_where(said, lambda path: not path.startswith(f"{run}/")))


def end_of_run(verdict: JobVerdict) -> dict[str, str]:
    """Return the variables that tell the step of `post_process` how the run has ended."""
    message = verdict.message if len(verdict.message) <= _LONGEST_ERROR else f"{verdict.message[:_LONGEST_ERROR]}..."
    return {
        RUN_STATE: PROJECTION.run(verdict.state),
        RUN_ERROR: message.replace("\0", "?"),
        FAILED_STEPS: ",".join(verdict.failed),
    }


def _set_environment(own: dict[str, Any], values: _Values) -> dict[str, str]:
    """Add the inherited variables to `env` of a step, and the texts that its logs mask; return its own variables."""
    env = {key: joined(text, values.of) for key, text in own["env"].items()}
    secrets = own.pop(SECRETS, ())
    inherited = without_sources(_inherited_here(), secrets) if secrets else _inherited_here()
    own["env"] = {**inherited, **env}
    if secrets:
        own["masked"] = texts_to_mask(secrets)
    return env


def _enter_packages(ctx: TaskContext, own: dict[str, Any], env: dict[str, str], step: str, log: str) -> None:
    """Let a step use the programs and packages of its environment, which is made if it is not there."""
    from weft.operators.environments import enter  # most steps need none

    kind, file, place = own[PACKAGES]
    made = enter(ctx, kind, file, place, step, log=log, tell=lambda news: ctx.emit(NEWS, news))
    own["programs"] = [made.programs]
    own["env"] = {**own["env"], **made.variables, **env}


def _log_name(ctx: TaskContext, logs: str) -> tuple[str, int]:
    """Return the name of the logs of a task, and the number of this attempt, counted over all owners of the run."""
    name, attempt = log_stem(ctx), ctx.attempt
    while os.path.lexists(os.path.join(logs, f"{name}.{attempt}.log")):
        attempt += 1
    return name, attempt


def log_stem(ctx: TaskContext) -> str:
    """Return the name of the logs of a task without the number of the attempt."""
    many = [str(ctx.index)] if ctx.parallelism > 1 else []
    return ".".join([file_name(ctx.params.get("name", ctx.vertex)), *many])


def _shortfalls(ctx: TaskContext, own: Mapping[str, Any], outputs: Sequence[str], result: Any) -> list[str]:
    """Send the outputs of an attempt to their URL; return what its result lacks."""
    warnings = [
        f"its output {PurePosixPath(path).name} {'is a link to nothing' if os.path.lexists(path) else 'was not made'}"
        for path in outputs
        if not os.path.exists(path)
    ]
    report = result if isinstance(result, dict) else {}
    if report.get("unmounted") and any(mount[1] in own.get("command", "") for mount in ctx.params[MOUNTS]):
        warnings.append(f"nothing is at its mount paths: {result['unmounted']}")
    if PUBLISH in ctx.params:
        warnings += _publish(ctx.params[PUBLISH], outputs, own["name"])
    if report.get("log_error"):
        warnings.append(f"its log is not complete: {result['log_error']}")
    if left := report.get("killed", 0):
        what = "1 process of it still ran" if left == 1 else f"{left} processes of it still ran"
        warnings.append(
            f"{what} when its command had ended, and {'was' if left == 1 else 'were'} killed: "
            "to let them finish, end the command with wait, else end them in it"
        )
    lost = (
        "is too long for an environment"
        if "kind" in own
        else "is too long for what it starts: only its own shell has it"
    )
    warnings += [f"{key} {lost}" for key in report.get("shell_only", ())]
    return warnings


def _denied(log: str, inputs: Mapping[str, Sequence[str]], made: Sequence[str] = ()) -> str:
    """Return what to write in a step that could not change its copy of an input, since runs share that one read-only.

    It is told by its log, or by a read-only file among what it has `made`. "" if it could.
    """
    if not any(inputs.values()):
        return ""
    if not any(map(read_only_file, made)) and not any(map(_DENIAL.search, last_lines(Path(log), count=_DENIALS))):
        return ""  # nearly always, and before a look at each file of the inputs
    found = next((path for paths in inputs.values() for path in paths if read_only_file(path, shared=True)), "")
    if not found:
        return ""
    return (
        f"{found} is so large that runs share it read-only, and cp keeps that mode in a copy: "
        "to change a copy, write cp --no-preserve=mode, or chmod -R u+w after it"
    )


def _surround(own: dict[str, Any], env: Mapping[str, str], step: str) -> list[str]:
    """Add the mounts or the container of a step to its parameters; return the omitted mounts with the reasons."""
    from weft.operators.mounts import SHELL, BindMount, make_mount_points, plan  # most steps need none

    wanted = own.get(MOUNTS, ())
    for source, _, read_only, _, sub_path in wanted:
        below = PurePosixPath(sub_path).parts
        if below and not read_only and not os.path.lexists(source):
            try:
                os.close(make_folders(Path(source).parents[len(below) - 1], below))
            except OSError as error:
                message = f"step {step} cannot start: the folder {source} cannot be made: {error.strerror}"
                raise TaskError(message, task=step, hint="See that you may write there.") from None
    mounts = [BindMount(*said[:4]) for said in wanted]
    if IMAGE in own:
        from weft.operators.containers import in_container

        own["prefix"], own["undo"] = in_container(own[IMAGE], cwd=own["cwd"], env=env, mounts=mounts, name=step)
        return []
    made = plan(mounts, own["cwd"], step, sys.executable if "kind" in own else SHELL)
    own["view"] = made.view
    make_mount_points(made.points, step)
    # A step works in its main file system anyway; the mount matters only to a command that uses the other path.
    named = any(mount.target in own.get("command", "") for mount in mounts)
    return [f"it does without a mount: {reason}" for reason in made.left_out] if named else []


def _run_kind(step: TaskContext, inputs: Mapping[str, TaskInput], values: _Values) -> Any:
    """Run the program of a kind with a context that has exactly the parameters of `kinds.StepKind`."""
    if step.cancelled():
        raise RunCancelledError(f"step {step.params['name']} was cancelled before it started")
    own = dict(step.params)
    kind = load_kind(own.pop("kind"))
    own["options"] = decoded(own.pop("with"), lambda text: joined(text, values.of), step.item)
    own["folder"] = own.pop("pipeline_folder")
    del own["portable"]
    step.params = {**own, "inputs": values.inputs, "outputs": dict(values.outputs), "item": step.item}
    program = resolve(Program(kind.program, style=Style.TASK))
    if not does_prepare(program):
        pass_gate(step.gate)
    return program(step, inputs)


def _publish(place: Sequence[str], outputs: Iterable[str], step: str) -> list[str]:
    """Send outputs to the store of the main file system; return warnings."""
    from weft.store.remote import Remote  # few steps need it

    url, folder = place
    try:
        links = Remote(url, Path(folder)).publish(outputs)
    except WeftError as error:
        raise TaskError(
            f"the outputs of step {step} were not sent: {error.message}", task=step, hint=error.hint
        ) from None
    return [f"links in its outputs were not sent, such as {links[0]}"] if links else []


class _Values(Struct, frozen=True):
    """The values of the placeholders in a step's texts, for one item with the paths of its artifacts."""

    item: str
    inputs: Mapping[str, list[str]]
    outputs: Mapping[str, str]
    who: str

    def of(self, kind: str, name: str) -> str:
        """Return the text for a placeholder."""
        if kind == OUTPUT:
            return self.outputs[name]
        if kind == INPUT:
            return ",".join(self.inputs[name])
        if kind == SECRET:
            return secret(name, self.who)
        return self.item if kind == ITEM else _content(self.inputs[name], name, self.who)


def _values(ctx: TaskContext, inputs: Mapping[str, TaskInput], own: Mapping[str, Any]) -> tuple[str, _Values]:
    """Return the users' name of this task, and its values."""
    name = own.get("name", ctx.vertex)
    if ctx.parallelism > 1:
        name = loop_item(name, ctx.index)
    paths = output_paths(ctx, own)
    item = "" if ctx.item is None else as_text(tuple_of(ctx.item))
    return name, _Values(item, places_of(ctx, inputs, own.get("inputs", {})), paths, name)


def output_paths(ctx: TaskContext, own: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths of the outputs of a task by name; `own` are the parameters of its step."""
    outputs = own.get("outputs", ())
    if "folder" in own:
        folder = OutputFolder(**own["folder"])
        return {key: folder.path(key, ctx.index) for key in outputs}
    return {PurePosixPath(path).name: path for path in outputs}


def places_of(ctx: TaskContext, inputs: Mapping[str, TaskInput], places: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the paths of artifacts by name, from the form of `parts.places_to_json` by name."""

    def value_of(source: str) -> Any:
        values = inputs[f"{source}->{ctx.vertex}"].all()
        return values[0] if values else ()

    return {name: delivered_paths(found, value_of) for name, found in places.items()}


# ------------------------------------------------------------------------------------------------------------ controls


def decide(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> str:
    """Decide whether a component runs: parameters `condition`, `inputs` (places of artifacts) and `name`."""
    name, values = _values(ctx, inputs, ctx.params)
    false = _false(ctx.params["condition"], values, name)
    if false:
        ctx.emit(NOT_RUN, false)
    return SKIPPED if false else RUN


def list_items(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> list[Any]:
    """Return the items of a loop from artifact `input`. TaskError: the artifact holds no list."""
    name, values = _values(ctx, inputs, ctx.params)
    found = read_list(values.inputs[ctx.params["input"]], name, ctx.params["input"])
    asked = ctx.params.get("as_paddleflow", ())
    if not found:
        fail_if_asked(name, asked)
    return [go_text(item) if isinstance(item, int | float) else item for item in found] if "numbers" in asked else found


def fail_if_asked(name: str, as_paddleflow: Collection[str]) -> None:
    """Raise TaskError for an empty loop if the pipeline asks for that."""
    if "empty_loop" in as_paddleflow:
        hint = "Without `empty_loop` in x-weft.as_paddleflow it would be skipped."
        raise TaskError(f"{name} loops over nothing", task=name, hint=hint)


def hand_on(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> dict[str, list[str]]:
    """Return the places of outputs, from parameter `outputs`."""
    return places_of(ctx, inputs, ctx.params.get("outputs", {}))


def nothing(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> None:
    """The body of a component that never runs."""


def _false(condition: Any, values: _Values, name: str) -> str:
    """Return that a condition is false, with its text; "" if it is true."""
    text = joined(condition, values.of)
    try:
        return conditions.why_false(text)
    except conditions.ConditionError as error:
        message = f"the condition of {name} cannot be answered: {show(text)}: {error}"
        parts = () if isinstance(condition, str) else [part for part in condition if not isinstance(part, str)]
        empty = [part_name for kind, part_name in parts if kind != ITEM and not values.of(kind, part_name).strip()]
        if empty:
            message += f"; there is nothing in {', '.join(dict.fromkeys(empty))}"
        raise TaskError(message, task=name, hint=conditions.HINT) from None


def read_list(paths: list[str], owner: str, name: str) -> list[Any]:
    """Return the JSON list in an artifact. TaskError: the artifact holds no list."""
    text = _read(paths, name, owner, MAX_LIST_BYTES, "loop over")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise TaskError(
            f"{owner} cannot loop over its input {name}: {paths[0]} holds {show(text[:200])}, which is not a JSON list",
            task=owner,
            hint="Write a list there, such as [1, 2, 3].",
        )
    for number, item in enumerate(found):
        if isinstance(item, dict):
            found[number] = item = json.dumps(item, ensure_ascii=False)
        try:
            check_value(item)
        except ValueError as error:
            what = f"item {number} of the list in {paths[0]}, {show(json.dumps(item)[:200])}, {error}"
            hint = "Items are texts, numbers, objects, and lists of texts, numbers and lists."
            raise TaskError(f"{owner} cannot loop over its input {name}: {what}", task=owner, hint=hint) from None
    return found


def _content(paths: list[str], name: str, owner: str) -> str:
    """Return the text of an artifact as `$(cat FILE)` of a shell does: without the line ends at its end."""
    return _read(paths, name, owner, MAX_CONTENT_BYTES, "have in its condition").rstrip("\n")


def _read(paths: list[str], name: str, owner: str, limit: int, what: str) -> str:
    if len(paths) != 1:
        message = f"{owner} cannot {what} its input {name}: that is {len(paths)} files"
        raise TaskError(message, task=owner, hint="Have a step before it put them into one.")
    try:
        with open(os.open(paths[0], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise IsADirectoryError(errno.EINVAL, "it is not a file")
            data = file.read(limit)
    except OSError as error:
        message = f"{owner} cannot {what} its input {name}: {paths[0]}: {error.strerror}"
        raise TaskError(message, task=owner, hint="See that the step before it writes a file there.") from None
    if len(data) >= limit:
        message = f"{owner} cannot {what} its input {name}: {paths[0]} has {limit:,} bytes or more"
        raise TaskError(message, task=owner, hint="Write less there.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        message = f"{owner} cannot {what} its input {name}: {paths[0]} is not UTF-8 text"
        raise TaskError(message, task=owner) from None


def file_name(step: str) -> str:
    """Return the name of a step as part of a file name."""
    return quote(step, safe="").replace(".", "%2E")


def answer_skipped(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> str:
    """Skip the members of the choice, for the parameter `reason`."""
    ctx.emit(NOT_RUN, ctx.params["reason"])
    return SKIPPED


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that steps inherit from Weft.

    It is the environment of this process without Weft's settings, variables of other shells and interpreters, and
    variables without a name.
    """
    return {
        name: value
        for name, value in environ.items()
        if name and name not in _OF_ANOTHER_SHELL and not name.startswith(_OWN_PREFIX)
    }


_known: tuple[Mapping[str, str] | None, dict[str, str]] = None, {}


def _inherited_here() -> dict[str, str]:
    """Return the inherited environment of this process; recomputed only after a change."""
    global _known
    now = variables_here()
    if now is not _known[0]:
        _known = now, inherited(now)
    return _known[1]


def _enter_run(processes: str, step: str) -> None:
    """Make the folder for records of processes, in the folder of the run. TaskError: this was moved or deleted.

    A new folder in its place has none of the files that the step works on, and could make it succeed without them.
    """
    try:
        os.mkdir(processes)
    except FileNotFoundError:
        raise _moved(step, f"the folder of its run, {os.path.dirname(processes)},") from None
    except OSError:  # it exists, or the guardian reports what is wrong with it
        pass


def _moved(step: str, folder: str) -> TaskError:
    return TaskError(
        f"step {step} cannot start: {folder} was moved or deleted",
        task=step,
        hint="Resume the run where the folder is now: weft resume RUN. On a cluster, all machines need it there.",
    )


def make_room(root: str, outputs: Iterable[str], step: str) -> None:
    """Create the parent folder of each output and remove what an earlier attempt left; links on the way are not
    followed.

    `root` is an existing folder and outputs are absolute paths below it. TaskError or DiskFullError names the path.
    """
    for output in outputs:
        *folders, last = PurePosixPath(output).relative_to(root).parts
        try:
            parent = make_folders(root, folders)
            try:
                remove_at(last, parent)
                remove_at(last + INCOMPLETE, parent)
            finally:
                os.close(parent)
        except OSError as error:
            if not os.path.isdir(root):
                raise _moved(step, f"the folder {root}, in which it works,") from None
            message = f"step {step} cannot start: no room can be made for its output {output}: {error.strerror}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFullError(message, hint="Free space on this disk.") from None
            hint = limit_advice(error) or "Check your write permission there, and that no folder on the path is a link."
            raise TaskError(message, task=step, hint=hint) from None


def put_aside(root: str, outputs: Iterable[str]) -> None:
    """Rename the outputs of a failed attempt, so that nobody takes them for results; links on the way are not followed.

    `root` and `outputs` are as for `make_room`. An output that cannot be renamed stays: the attempt has failed anyway.
    """
    for output in outputs:
        *folders, last = PurePosixPath(output).relative_to(root).parts
        with suppress(OSError):
            parent = make_folders(root, folders, make=False)
            try:
                os.rename(last, last + INCOMPLETE, src_dir_fd=parent, dst_dir_fd=parent)
            finally:
                os.close(parent)
