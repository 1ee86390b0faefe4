"""The commands of `weft party` about a server and its jobs: start, demo, upload, submit, jobs, show, logs, stop."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from weft.cli.arguments import AsJson, Given
from weft.cli.parsing import CommandParameter
from weft.cli.parties import Folder, party_app, site_of
from weft.cli.party_views import print_job
from weft.cli.tables import clean, moment, one_line, print_json, print_table, short_path
from weft.model.errors import ConflictError, NotFoundError, RunFailedError, UsageError
from weft.model.wording import duration

if TYPE_CHECKING:
    from weft.cli.context import CommandContext
    from weft.parties.client import SiteClient
    from weft.parties.demo import DemoClock
    from weft.store.state import LogFile

Job = Annotated[str, CommandParameter(help="The id of a job, or @last.")]
_SUCCESS: Final = "success"


def file_to_write(context: CommandContext, file: Path | str) -> Path:
    """Return the path of a file that a command writes. NotFoundError: there is no such folder."""
    path = context.cwd / file
    if not path.parent.is_dir():
        raise NotFoundError(
            f"there is no folder {short_path(path.parent, context.cwd)}", hint="Make it, or name another file."
        )
    return path


@party_app.command
def start(*, folder: Folder = None, context: Given) -> None:
    """Run the server of a party, until Ctrl-C."""
    site_of(context, folder)
    from weft.parties.serving import serve

    serve(context.cwd / (folder or ""), context.say)


@party_app.command
def demo(
    *,
    folder: Annotated[
        Path | None, CommandParameter(name="--folder", help="Keep the three parties here; by default nothing is kept.")
    ] = None,
    toy: Annotated[bool, CommandParameter(help="Only add secret shares.")] = False,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Run three parties on this machine, which score the credit of 30,000 clients together."""
    from weft.parties.extras import require_libraries

    require_libraries()
    from weft.parties.demo import run_demo

    result = run_demo(None if folder is None else context.cwd / folder, _clock(context), context.say, toy=toy)
    if as_json:
        print_json(context.out, "weft.party.demo/1", **result._asdict())
    else:
        print_job(context, result.shown)
    if result.status != _SUCCESS:
        raise RunFailedError(f"job {result.job} ended as {result.status}", hint="The reason stands above.")


@party_app.command
def upload(
    file: Annotated[Path, CommandParameter(help="A CSV file, which may be compressed with gzip.")],
    /,
    *,
    name: Annotated[str, CommandParameter(help="The name of the table.")],
    namespace: Annotated[str, CommandParameter(help="Its namespace.")],
    drop: Annotated[bool, CommandParameter(help="Replace a table of this name.")] = False,
    id_delimiter: Annotated[
        str, CommandParameter(help=r"The character between columns, \t for a tab; by default a comma.")
    ] = ",",
    no_head: Annotated[bool, CommandParameter(help="The first line is a row: the file does not name columns.")] = False,
    extend_sid: Annotated[bool, CommandParameter(help="The file has no ids: make one for each row.")] = False,
    folder: Folder = None,
    context: Given,
) -> None:
    """Store a CSV file as a table of the party: ids first, and a head that names the columns. It stays here."""
    path = context.cwd / file
    if not path.is_file():
        raise NotFoundError(f"there is no file {file}")
    fields = {"namespace": namespace, "table_name": name, "head": int(not no_head), "partition": 1, "drop": int(drop)}
    fields |= {"id_delimiter": "\t" if id_delimiter == r"\t" else id_delimiter, "extend_sid": int(extend_sid)}
    stored = client_of(context, folder).upload(path, fields)["data"]
    columns = stored["columns"]
    context.out.write(
        f"table    {clean(namespace)}.{clean(name)}\n"
        f"rows     {stored['count']:,}\n"
        f"id       {clean(stored['schema']['sid'])}\n"
        f"columns  {len(columns):,}: {one_line(', '.join(columns))}\n"
    )
    option = "" if folder is None else f" --folder {short_path(folder, context.cwd)}"
    named = f"--namespace {shlex.quote(namespace)} --name {shlex.quote(name)}{option}"
    context.say(f"Jobs of another party use it after: weft party grant ID {named}")


@party_app.command
def submit(
    conf: Annotated[Path, CommandParameter(help="The conf of the job.")],
    /,
    *,
    dsl: Annotated[
        Path | None,
        CommandParameter(name="--dsl", help="The DSL of the job; a deployed model has one."),
    ] = None,
    detach: Annotated[bool, CommandParameter(name=("-d", "--detach"), help="Do not wait for its end.")] = False,
    as_json: AsJson = False,
    folder: Folder = None,
    context: Given,
) -> None:
    """Submit a federated job to the server of its initiator, and follow it."""
    client = client_of(context, folder)
    from weft.parties.job_files import read_files

    files = read_files(context.cwd, str(conf), None if dsl is None else str(dsl))
    job = str(client.post("job/submit", {"job_dsl": files.dsl, "job_runtime_conf": files.conf})["job_id"])
    context.say(f"job {job} is submitted")
    context.hint = f"The job goes on. weft party show {job} shows it, weft party stop {job} stops it."
    _follow(context, client, job, detach=detach, as_json=as_json)


@party_app.command
def jobs(
    *,
    status: Annotated[str, CommandParameter(help="List only jobs with this status, such as failed.")] = "",
    number: Annotated[int, CommandParameter(name=["-n", "--number"], help="List at most this many; 0: all.")] = 20,
    quiet: Annotated[bool, CommandParameter(name=["-q", "--quiet"], help="Print only ids.")] = False,
    as_json: AsJson = False,
    folder: Folder = None,
    context: Given,
) -> None:
    """List the jobs of the party, newest first."""
    found = client_of(context, folder).post("weft/jobs", {"limit": number, "status": status})
    if as_json:
        print_json(context.out, "weft.party.jobs/1", jobs=found)
        return
    if quiet:
        context.out.write("".join(f"{one['job']}\n" for one in found))
        return
    rows = [
        (
            one["job"],
            one["status"],
            one_line(one["initiator"], 40),
            moment(one["created"]),
            duration(one["seconds"]) if one["seconds"] is not None else "",
            one_line(one["reason"], 60),
        )
        for one in found
    ]
    print_table(context.console(), ("JOB", "STATUS", "INITIATOR", "CREATED", "TIME", "REASON"), rows)


@party_app.command
def show(job: Job, /, *, as_json: AsJson = False, folder: Folder = None, context: Given) -> None:
    """Show a job: each party's part, what it waits for, and what has left this party."""
    client = client_of(context, folder)
    print_job(context, client.post("weft/job", {"job_id": job_of(client, job)}), as_json=as_json)


@party_app.command
def logs(
    target: Annotated[str, CommandParameter(help="JOB, JOB/COMPONENT, or JOB/COMPONENT/ROLE.")],
    /,
    *,
    follow: Annotated[
        bool, CommandParameter(name=["-f", "--follow"], help="Follow the logs until the job has ended.")
    ] = False,
    tail: Annotated[
        int | None, CommandParameter(name="--tail", help="Print only this many lines at the end of each log.")
    ] = None,
    timestamps: Annotated[
        bool, CommandParameter(name=["-t", "--timestamps"], help="Print when each line arrived, in local time.")
    ] = False,
    as_json: Annotated[bool, CommandParameter(name="--json", help="Print one JSON document for each line.")] = False,
    folder: Folder = None,
    context: Given,
) -> None:
    """Print the logs of the components of a job at this party."""
    from weft.cli.logs import LogView, print_logs

    if tail is not None and tail < 0:
        raise UsageError(f"--tail is {tail}; it must be 0 or more")
    client = client_of(context, folder)
    job, _, rest = target.partition("/")
    component, _, role = rest.partition("/")
    wanted = {"job_id": job_of(client, job), "component": component, "role": role}

    def look() -> tuple[list[LogFile], bool]:
        found = client.post("weft/log", wanted)
        return [_log_file(one) for one in found["logs"]], found["active"]

    view = LogView(tail, as_json, timestamps)
    context.follows = follow
    printed = print_logs(look, context.out, view, follow=follow, pause=context.pause, say=context.say)
    if not printed and tail != 0:
        context.say(f"{target} has printed nothing at this party")


@party_app.command
def stop(job: Job, /, *, as_json: AsJson = False, folder: Folder = None, context: Given) -> None:
    """Stop a job at all its parties."""
    from weft.parties.demo import ENDED

    client = client_of(context, folder)
    id = job_of(client, job)
    status = client.post("weft/job", {"job_id": id})["status"]
    client.post("job/stop", {"job_id": id})
    if as_json:
        print_json(context.out, "weft.party.stop/1", job=id)
    elif status in ENDED:
        context.say(f"job {id} has ended already: {status}")
    else:
        context.say(f"job {id} is being stopped at all its parties; see how it gets on: weft party show {id}")


@party_app.command(name="clean")
def clean_job(job: Job, /, *, folder: Folder = None, context: Given) -> None:
    """Delete what an ended job has left at this party: rows, logs, figures. Its models stay."""
    client = client_of(context, folder)
    id = job_of(client, job)
    client.post("job/clean", {"job_id": id})
    context.say(f"what job {id} has left here is deleted")


@party_app.command
def rerun(
    job: Job,
    /,
    *,
    component: Annotated[
        str, CommandParameter(name="--from", help="Run this component and those below it again.")
    ] = "",
    force: Annotated[bool, CommandParameter(help="Run successful components again, too.")] = False,
    changes: Annotated[
        Path | None,
        CommandParameter(name="--changes", help="A file with the job_parameters and component_parameters that change."),
    ] = None,
    folder: Folder = None,
    context: Given,
) -> None:
    """Run the failed components of an ended job again, and what has not run."""
    client = client_of(context, folder)
    id = job_of(client, job)
    if changes is not None:
        from weft.parties.job_files import read_changes

        changed = client.post("job/parameter/update", {**read_changes(context.cwd, str(changes)), "job_id": id})
        context.say(f"changed: {clean(', '.join(changed['components']) or 'nothing')}")
    client.post("job/rerun", {"job_id": id, "component_name": component, "force": force})
    context.say(f"job {id} runs again; see how it gets on: weft party show {id}")


@party_app.command
def step(
    job: Job,
    /,
    *,
    all: Annotated[bool, CommandParameter(help="Go on without pauses.")] = False,
    folder: Folder = None,
    context: Given,
) -> None:
    """Let the next component of a job with single_step begin."""
    client = client_of(context, folder)
    id = job_of(client, job)
    held = client.post("weft/step", {"job_id": id, "all": int(all)})["held"]
    context.say(f"job {id} goes on" + (f" with {', '.join(held if all else held[:1])}" if held else ""))


def resume(context: CommandContext, folder: Path, job: str, *, detach: bool, as_json: bool) -> None:
    """Run the rest of a job that has failed or was stopped, and follow it. ConflictError: it runs, or has succeeded."""
    from weft.parties.demo import ENDED

    client = client_of(context, folder)
    id = job_of(client, job)
    status = client.post("weft/job", {"job_id": id})["status"]
    if status == _SUCCESS:
        raise ConflictError(
            f"job {id} has succeeded: there is nothing left to do",
            hint=f"To run it again: weft party rerun {id} --force",
        )
    if status not in ENDED:
        raise ConflictError(f"job {id} is {status}: it goes on by itself", hint=f"What it waits for: weft show {id}")
    client.post("job/rerun", {"job_id": id})
    context.hint = f"The job goes on. weft show {id} shows it, weft cancel {id} stops it."
    _follow(context, client, id, detach=detach, as_json=as_json)


def _follow(context: CommandContext, client: SiteClient, job: str, *, detach: bool, as_json: bool) -> None:
    """Follow a job to its end, and print it; with `detach` only its id. RunFailedError: it has not succeeded."""
    from weft.parties.demo import follow

    if detach:
        context.out.write(f"{job}\n")
        return
    shown = follow(client, job, _clock(context), context.say)
    print_job(context, shown, as_json=as_json)
    if shown["status"] != _SUCCESS:
        raise RunFailedError(f"job {job} ended as {shown['status']}", hint="The reason stands above.")


@party_app.command
def approve(
    job: Job,
    /,
    *,
    decline: Annotated[str | None, CommandParameter(help="Decline it, for this reason, which others see.")] = None,
    folder: Folder = None,
    context: Given,
) -> None:
    """Approve a job of another party that waits for it, or decline it."""
    client = client_of(context, folder)
    id = job_of(client, job)
    client.post("weft/approve", {"job_id": id, "decline": decline})
    done = "is declined" if decline is not None else "is approved, and begins when all its parties have accepted it"
    context.say(f"job {id} {done}; see how it gets on: weft party show {id}")


# ------------------------------------------------------------------------------------------------------------- inside


def _clock(context: CommandContext) -> DemoClock:
    from weft.parties.demo import DemoClock

    return DemoClock(context.clock.wall, context.clock.now, context.pause)


def client_of(context: CommandContext, folder: Path | None) -> SiteClient:
    """Return the client of the server of the party in a folder."""
    site = site_of(context, folder)
    from weft.parties.client import SiteClient

    return SiteClient.of(site)


def job_of(client: SiteClient, job: str) -> str:
    """Return the id of a job; `@last` is the newest one. NotFoundError: the party has none."""
    if job != "@last":
        return job
    found = client.post("weft/jobs", {"limit": 1})
    if not found:
        raise NotFoundError("the party has no jobs")
    return str(found[0]["job"])


def _log_file(log: dict[str, Any]) -> LogFile:
    from weft.store.state import LogFile

    return LogFile(Path(log["path"]), log["name"], None, log["attempt"])
