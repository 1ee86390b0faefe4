"""The table of the verbs of runs and schedules: help and options of the command line, protocol of the control socket,
methods of `RunService`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.errors import UsageError
from weft.model.wording import with_article

Handler = Callable[[Mapping[str, Any]], Any]
TYPES: Final[Mapping[str, type]] = {
    "run": str,
    "target": str,
    "path": str,
    "text": str,
    "flag": bool,
    "count": int,
    "seconds": float,
}
"""The types of arguments, and their types in JSON; `run` is a name of a run, `target` that of a run or a step."""


class Argument(Struct, frozen=True):
    """One argument of a verb; with `many` it is a list of such values.

    `options` are its names on the command line, by default `--name`. With `bare` it may stand there without a value,
    and has this one then. `filled` forbids an empty value: of a shell variable that is not set, it would be taken
    for an absent option.
    """

    name: str
    type: str
    help: str
    many: bool = False
    options: tuple[str, ...] = ()
    bare: str = ""
    filled: bool = False


class Verb(Struct, frozen=True):
    """One operation. `returns` names the fields of the answer; `method` is the method of `RunService`.

    `changes`: it changes state. `owner`: the process that owns the run answers it, by its control socket. `aliases`
    are further names on the command line.
    """

    name: str
    method: str
    help: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    changes: bool = False
    owner: bool = False
    aliases: tuple[str, ...] = ()

    def order(self, **arguments: object) -> dict[str, object]:
        """Return the message that asks the owner of a run for this verb; a default argument is left out."""
        return {"do": self.name, **{name: value for name, value in arguments.items() if value not in (False, "")}}


_RUN: Final = Argument("run", "run", "An id, a unique prefix of one, a number, @last or @failed.")
_TARGET: Final = Argument("target", "target", "RUN, RUN/STEP or RUN/STEP@ATTEMPT.")
_SHOWN: Final = replace(_TARGET, help="RUN or RUN/STEP; RUN/STEP-2 or RUN/STEP[2] is an item of a loop.")
_CANCELLED: Final = "RUN, or RUN/STEP; RUN/STEP-2 or RUN/STEP[2] is an item of a loop, or a task of a vertex."
_FILE: Final = Argument(
    "file",
    "path",
    "A pipeline (YAML, file.py:name, or - for standard input), or training jobs (a file or a folder).",
)
_RUN_NAME: Final = Argument("name", "text", "The name of the run.", options=("-n", "--name"))
_PARAMETERS: Final = Argument(
    "parameters",
    "text",
    "Set a parameter: NAME=VALUE or STEP.NAME=VALUE.",
    many=True,
    options=("-p", "--param"),
)
_FS: Final = Argument(
    "fs", "text", "Define a file system: NAME=FOLDER, or NAME=URL of fsspec.", many=True, options=("-f", "--fs")
)
_USER: Final = Argument("user", "text", "The user name of the run.", filled=True)
_DOCKER_ENV: Final = Argument("docker_env", "text", "Images of steps: ignore, docker, podman or require.")
_CACHING: Final = (
    Argument("no_cache", "flag", "Neither read nor write the cache."),
    Argument("refresh", "text", "Run this step even if the cache has its result, and keep the new result.", many=True),
    Argument("start", "text", "Run this step and all steps that depend on it.", options=("--from",), filled=True),
    Argument("only", "text", "Run only this step and the steps that it needs.", filled=True),
    Argument(
        "targets",
        "text",
        "Run only what this needs: a step, STEP/OUTPUT, or the path of an output of an earlier run.",
        many=True,
        options=("--target",),
    ),
)
_TAGS: Final = Argument("tags", "text", "Give the run a tag: NAME=VALUE, or NAME.", many=True, options=("--tag",))
_NOTE: Final = Argument("note", "text", "Give the run a note: any text.")
_WORKERS: Final = (
    Argument("workers", "text", "The number of tasks that run at a time."),
    Argument("backend", "text", "The backend: threads, processes or ray."),
    Argument("cluster", "text", "The Ray cluster: HOST:PORT, ray://HOST:PORT, or auto, the one on this machine."),
    Argument(
        "env", "text", "The requirements file whose packages the machines of the Ray cluster install for the run."
    ),
    Argument("working_dir", "text", "The folder that is copied to the machines of the Ray cluster."),
    Argument("memory", "text", "The memory for data before it spills to disk, such as 4GiB."),
    Argument("eviction", "text", "The eviction order: furthest, largest or lru."),
    Argument("stream_window", "text", "The bytes that an edge between streaming tasks may hold."),
    Argument("durability", "text", "The failure that a reported end of a step survives: process or power."),
)
_NOTIFY: Final = Argument(
    "notify", "text", "Tell the end of the run to a URL (or secret:NAME, which has one) or to a command.", filled=True
)
_REPLICAS: Final = (
    Argument("isolation", "text", "The network of training jobs: auto, namespace, ports or container."),
    Argument("outer_network", "flag", "Let replicas in namespaces reach other networks than that of their job."),
    Argument("without_gpus", "flag", "Run training jobs without the GPUs that they request."),
    Argument("compat", "text", "The rules of training jobs: fixed, or strict, as the training operator."),
    Argument("tensorboard", "text", "Serve the log folders of training jobs at a free port, or this one.", bare="auto"),
    Argument("priority", "text", "The priority of training jobs; by default, that of their files."),
    Argument("queue", "text", "The queue of training jobs; by default, that of their files."),
    Argument("requests", "text", "What training jobs request: count it, or ignore it and start all replicas at once."),
    Argument("gpus", "text", "The number of GPUs that the replicas of training jobs may request."),
    Argument("gpu_type", "text", "The type of these GPUs."),
)
_PROFILE: Final = Argument(
    "profile", "text", "Use the parameters, settings and words for steps of this profile.", filled=True
)
_STORAGE: Final = Argument(
    "storage", "text", "The URL by which machines of a cluster without a shared folder get files."
)
_NEW_RUN: Final = (_PARAMETERS, _FS, _USER, _DOCKER_ENV, *_CACHING, *_REPLICAS, _PROFILE, _STORAGE)
_SCHEDULE: Final = Argument("name", "text", "The name of a schedule.")
_SCHEDULING: Final = (
    Argument("cron", "text", "The times: five fields as in cron, @daily, @every 90s, ..."),
    Argument("name", "text", "The name of the schedule; by default, that of the pipeline.", options=("-n", "--name")),
    Argument(
        "zone",
        "text",
        "The time zone, such as Europe/Berlin; by default, that of this machine.",
        options=("--tz",),
        filled=True,
    ),
    Argument(
        "start_at",
        "text",
        "Start no run before this time, such as 2030-01-31T08:00, in the zone of the schedule unless it has an offset.",
        options=("--start",),
    ),
    Argument("end_at", "text", "Start no run after this time, read as that of --start.", options=("--end",)),
    Argument("concurrency", "count", "The number of runs at a time; 0: unlimited."),
    Argument("policy", "text", "The policy at the concurrency limit: suspend, replace or skip."),
    Argument("expire", "seconds", "Skip a run that could not start within this time, such as 2h."),
    Argument("no_catchup", "flag", "Skip the times that pass while `weft up` is not running."),
)
_SWEEPING: Final = (
    Argument("sample", "count", "Run only so many points of the grid, chosen at random."),
    Argument("seed", "count", "The seed of the choice; by default a new one, which is printed."),
    Argument(
        "metric", "text", "Sort the points by this number in an output of JSON: NAME, or STEP.OUTPUT.NAME.", filled=True
    ),
    Argument("maximize", "flag", "More of the metric is better; by default, less is."),
    Argument("at_a_time", "count", "The number of runs at a time; by default, the number of workers."),
    Argument("stop_when", "text", "End the sweep when a run meets this condition: 'loss < 0.1'.", filled=True),
    Argument(
        "halve",
        "text",
        "At 1, 2, 4, ... of this number, drop runs whose metric is not among the better half: epoch.",
        filled=True,
    ),
    Argument("resume", "text", "Go on with an earlier sweep, by its id or @last."),
)

VERBS: Final[Mapping[str, Verb]] = {
    verb.name: verb
    for verb in (
        Verb(
            "run",
            "submit",
            "Run a pipeline and wait for its end.",
            (
                _FILE,
                _RUN_NAME,
                *_NEW_RUN,
                *_WORKERS,
                _TAGS,
                _NOTE,
                _NOTIFY,
                Argument("dry_run", "flag", "Print the plan, as `weft plan` does, and run nothing."),
                Argument(
                    "touch",
                    "text",
                    "Run nothing: take the outputs of the last succeeded run, or of this one, as the results now.",
                    bare="auto",
                ),
            ),
            ("run",),
            changes=True,
        ),
        Verb(
            "resume",
            "resume",
            "Continue a failed, cancelled, suspended or killed run; finished steps do not run again.",
            (
                _RUN,
                Argument("file", "path", "Resume with this edited file."),
                _PARAMETERS,
                *_WORKERS,
                _NOTIFY,
                Argument("gpus", "text", "The number of GPUs for tasks of a Python graph that request them."),
                Argument("gpu_type", "text", "The type of these GPUs."),
                replace(_STORAGE, help="The URL with the files of a run whose process was lost elsewhere."),
            ),
            ("run",),
            changes=True,
        ),
        Verb(
            "sweep",
            "sweep",
            "Run a pipeline for each point of a grid of parameters: -p lr=0.1,0.01 -p depth=1..5.",
            (
                replace(_FILE, help="A pipeline (YAML, or file.py:name)."),
                _RUN_NAME,
                replace(_PARAMETERS, help="A parameter with its values: NAME=VALUE,VALUE, 1..5, or 0..1..0.25."),
                *_NEW_RUN[1:],
                *_WORKERS,
                _TAGS,
                _NOTE,
                *_SWEEPING,
            ),
            ("sweep",),
            changes=True,
        ),
        Verb(
            "cancel",
            "cancel",
            "Cancel a run: stop its tasks in order, then run its post_process. Or cancel one step: the others go on.",
            (
                replace(_RUN, help=_CANCELLED),
                Argument("force", "flag", "Stop its post_process too."),
                Argument("reason", "text", "The reason, for the records of the run."),
                Argument("subject", "text", "A step, or one task of it: `step[3]`."),
            ),
            ("run",),
            changes=True,
            owner=True,
        ),
        Verb(
            "suspend",
            "suspend",
            "Suspend a run: start no more tasks, and release it when its running tasks have ended.",
            (_RUN, Argument("now", "flag", "Stop running tasks; a resume runs them again.")),
            ("run",),
            changes=True,
            owner=True,
        ),
        Verb(
            "scale",
            "scale",
            "Change the number of replicas of a running training job, or of a step (RUN/STEP).",
            (_RUN, Argument("counts", "text", "The replica type and its new number: worker=4.", many=True)),
            ("run", "unchanged"),
            changes=True,
            owner=True,
        ),
        Verb(
            "watch",
            "watch",
            "Show the progress of a run until it ends.",
            (_RUN,),
            ("records",),
        ),
        Verb(
            "ls",
            "list_runs",
            "List the runs, newest first.",
            (
                Argument("state", "text", "List only runs in this state."),
                Argument("name", "text", "List only runs of this name."),
                replace(_TAGS, help="List only runs with this tag: NAME=VALUE, or NAME with any value."),
                Argument("number", "count", "List at most this many; 0: all.", options=("-n", "--number")),
            ),
            ("runs", "total"),
            aliases=("list",),
        ),
        Verb(
            "show",
            "show",
            "Show one run, or one step of it: times, parameters, outputs and paths of logs.",
            (_SHOWN,),
            ("run",),
        ),
        Verb(
            "fetch",
            "fetch",
            "Bring the outputs of a run at a cluster, which lie at the URL of its storage, to this machine.",
            (_RUN,),
            ("run",),
            changes=True,
        ),
        Verb(
            "tag",
            "tag",
            "Give a run tags, or remove some; a run with the tag `keep` is never pruned.",
            (
                _RUN,
                Argument("tags", "text", "The tags: NAME=VALUE, or NAME.", many=True),
                Argument("remove", "text", "Remove the tag of this name.", many=True),
            ),
            ("run", "tags"),
            changes=True,
        ),
        Verb(
            "note",
            "note",
            "Give a run a note, in place of the one that it has; an empty text removes it.",
            (_RUN, Argument("text", "text", "The note.")),
            ("run", "note"),
            changes=True,
        ),
        Verb(
            "metrics",
            "metrics",
            "Print the counters of the training jobs of a project in the text form of Prometheus.",
            (),
            ("counters",),
        ),
        Verb(
            "logs",
            "logs",
            "Print the logs of a run or of one step: the latest attempt of each task, or the named attempt.",
            (_TARGET,),
            ("lines",),
        ),
        Verb(
            "story",
            "story",
            "Print the history of a run or a step, with reasons.",
            (_TARGET, Argument("subject", "text", "A vertex, or one task of it: `vertex[3]`; without it the run.")),
            ("lines",),
            owner=True,
        ),
        Verb(
            "explain",
            "explain",
            "Compare the planned and the executed graph, and print each change with its cause.",
            (_RUN,),
            ("graph", "changes"),
            owner=True,
        ),
        Verb(
            "why",
            "why",
            "Explain why a step waits, why it ran, or which result of the cache it used.",
            (
                _TARGET,
                Argument("against", "run", "Compare with this run, not with the nearest result."),
                Argument("subject", "text", "A step, or one task of it: `step[3]`."),
            ),
            ("waits", "outcome", "reason", "differences"),
            owner=True,
        ),
        Verb(
            "compare",
            "compare",
            "Compare two runs: what they were given, how they went, what they made; and say why results differ.",
            (
                replace(_RUN, name="first", help="The run to compare with: an id, a number, @last or @failed."),
                replace(_RUN, name="second", help="The other run."),
            ),
            ("comparison",),
        ),
        Verb(
            "report",
            "report",
            "Write a run as one HTML page that works offline, or its graph as SVG or Mermaid.",
            (
                _RUN,
                Argument(
                    "output",
                    "path",
                    "Write it here, by the ending: .html, .svg or .mmd; by default, to RUN.html.",
                    options=("-o", "--output"),
                ),
            ),
            ("path",),
        ),
        Verb(
            "export",
            "export",
            "Write a run of a pipeline as an RO-Crate: a folder, or a ZIP file, with files, digests and provenance.",
            (
                _RUN,
                Argument(
                    "output",
                    "path",
                    "Write it here: a ZIP file if the name ends in .zip, else a folder; by default, RUN.crate.zip.",
                    options=("-o", "--output"),
                ),
                Argument("license", "text", "The license of the crate: a URL, or a name."),
                Argument("without_outputs", "flag", "Describe the outputs, with their digests, and copy none."),
                Argument("logs", "flag", "Copy the logs of the last attempts too."),
            ),
            ("path",),
        ),
        Verb(
            "plan",
            "plan",
            "Print what a run would do: steps with reasons, replicas of training jobs, or parts of federated jobs.",
            (
                _FILE,
                Argument("dsl", "path", "The DSL of a federated job, whose conf is FILE."),
                _RUN_NAME,
                *_NEW_RUN,
                *_WORKERS,
            ),
            ("steps",),
        ),
        Verb(
            "graph",
            "load",
            "Draw the graph of a pipeline without running it.",
            (
                _FILE,
                _PARAMETERS,
                _FS,
                _PROFILE,
                Argument("dot", "flag", "Print the graph in the language of Graphviz."),
            ),
            ("graph",),
        ),
        Verb(
            "delete",
            "delete",
            "Delete ended runs: their outputs, logs and records. Results in the cache stay.",
            (
                replace(_RUN, name="runs", many=True),
                Argument("force", "flag", "Delete a run whose disk with outputs is not there, too: the outputs stay."),
            ),
            ("runs",),
            changes=True,
        ),
        Verb(
            "prune",
            "prune",
            "Delete old runs: all ended runs that no option keeps.",
            (
                Argument(
                    "older_than", "seconds", "Delete only runs that ended longer ago than this, such as 30d or 12h."
                ),
                Argument("keep", "count", "Keep this many of the newest."),
                Argument(
                    "keep_last",
                    "count",
                    "Keep this many of the newest of each pipeline, and the newest whole one that has succeeded.",
                ),
                Argument("name", "text", "Delete only runs of this name."),
                Argument(
                    "state",
                    "text",
                    "Delete only runs in this state: succeeded, failed, terminated, interrupted or suspended.",
                ),
                Argument("dry_run", "flag", "Print the runs, and delete none."),
            ),
            ("runs", "deleted"),
            changes=True,
        ),
        Verb(
            "schedule create",
            "schedules.create",
            "Create a schedule of a pipeline; `weft up` fires it.",
            (_FILE, *_SCHEDULING, *_NEW_RUN, *_WORKERS, _TAGS, _NOTE, _NOTIFY),
            ("schedule",),
            changes=True,
        ),
        Verb("schedule ls", "schedules.list_schedules", "List the schedules.", (), ("schedules", "up")),
        Verb(
            "schedule show",
            "schedules.show",
            "Show one schedule: its next times, and the runs of its last times.",
            (
                _SCHEDULE,
                Argument("number", "count", "Show this many of its last times; 0: all.", options=("-n", "--number")),
            ),
            ("schedule", "times"),
        ),
        Verb(
            "schedule stop",
            "schedules.stop",
            "Stop a schedule for ever; its runs continue.",
            (_SCHEDULE,),
            ("schedule",),
            changes=True,
        ),
        Verb(
            "schedule delete",
            "schedules.delete",
            "Delete an ended schedule; its runs stay.",
            (_SCHEDULE,),
            ("schedule",),
            changes=True,
        ),
    )
}
"""All verbs by name. The owner of a run needs no name of it, and receives the other arguments."""


def protocol(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """Return the handlers of a control socket: one for each verb of an owner, which refuses unknown arguments.

    KeyError: a verb has no handler.
    """
    return {verb.name: _checked(verb, handlers[verb.name]) for verb in VERBS.values() if verb.owner}


def _checked(verb: Verb, handler: Handler) -> Handler:
    types = {one.name: TYPES[one.type] for one in verb.arguments if one.type not in ("run", "target")}

    def answer(order: Mapping[str, Any]) -> Any:
        for name, value in order.items():
            if name == "do":
                continue
            if name not in types:
                known = f"It takes: {', '.join(types)}" if types else "It takes no argument."
                raise UsageError(f"{verb.name} takes no argument {name[:60]!r}", hint=known)
            if type(value) is not types[name]:
                raise UsageError(
                    f"{name} of {verb.name} is {str(value)[:60]!r}; it must be {with_article(types[name].__name__)}"
                )
        return handler(order)

    return answer
