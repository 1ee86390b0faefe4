"""The command `weft party suite`: runs the suites of FATE's examples, and tells what came of each task."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from weft.cli.arguments import AsJson, Given
from weft.cli.parsing import CommandParameter
from weft.cli.parties import party_app, site_of
from weft.cli.tables import clean, one_line, print_json, print_table
from weft.model.errors import RunFailedError, UsageError
from weft.model.records import as_dict
from weft.model.wording import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.cli.context import CommandContext
    from weft.parties.site import PartySite
    from weft.parties.suites import SuiteReport

_FIRST: Final = ("auc", "ks", "accuracy", "r2_score", "root_mean_squared_error", "adjusted_rand_score", "fmi")
_METRICS: Final = 3
"""The metrics of a task that a table shows; `--json` has all."""


@party_app.command
def suite(
    *files: Annotated[str, CommandParameter(help="Files of suites, such as binary_testsuite.json of FATE's examples.")],
    party: Annotated[
        list[str] | None,
        CommandParameter(
            help="ROLE_NUMBER=FOLDER: the party that stands there in each conf, such as guest_0=bank; may be repeated. "
            "By default, parties with the ids of the files are made on this machine."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        CommandParameter(help="The folder of the data; by default it is looked for around the file of the suite."),
    ] = None,
    only: Annotated[
        list[str] | None, CommandParameter(help="Run this task, and those that it needs; may be repeated.")
    ] = None,
    timeout: Annotated[int | None, CommandParameter(help="The seconds that a job may take.")] = None,
    folder: Annotated[
        Path | None, CommandParameter(name="--folder", help="Keep the parties that are made here.")
    ] = None,
    as_json: AsJson = False,
    context: Given,
) -> int:
    """Run suites of FATE: upload their data, and submit their tasks, each after those that it needs."""
    if not files:
        raise UsageError("no suite is named", hint="Name its file: weft party suite binary_testsuite.json")
    if timeout is not None and timeout < 1:
        raise UsageError(f"the timeout is {timeout}; it must be at least 1 second")
    if party and folder:
        raise UsageError("--folder is for parties that are made, and --party names others", hint="Leave one out.")
    from weft.parties.extras import require_libraries

    require_libraries()
    from weft.parties.client import SiteClient
    from weft.parties.demo import DemoClock
    from weft.parties.suites import SuiteOptions, load_suite, parties_for, read_folders, run_suite

    sites = {place: site_of(context, Path(name)) for place, name in read_folders(party or []).items()}
    _check(sites, party or [])
    options = SuiteOptions(
        data=None if data is None else context.cwd / data,
        only=tuple(only or ()),
        timeout_s=timeout,
        ids={place: site.party.id for place, site in sites.items()} or None,
    )
    clock = DemoClock(context.clock.wall, context.clock.now, context.pause)
    loaded = [load_suite(context.cwd, file, options) for file in files]
    with ExitStack() as stack:
        if sites:
            clients = {site.party.id: SiteClient.of(site) for site in sites.values()}
        else:
            place = None if folder is None else context.cwd / folder
            clients = stack.enter_context(parties_for(loaded, place, clock, context.say))
        reports = [run_suite(one, clients, options, clock, context.say) for one in loaded]
    _print(context, reports, as_json=as_json)
    failed = sum(one.status != "success" for each in reports for one in each.results)
    count = sum(len(one.results) for one in reports)
    if failed and not as_json:
        raise RunFailedError(f"{failed} of {count} tasks did not succeed", hint="The reasons stand above.")
    return int(failed > 0)


def _check(sites: Mapping[tuple[str, int], PartySite], given: list[str]) -> None:
    """UsageError: two folders have parties of the same id."""
    folders: dict[str, Path] = {}
    for site in sites.values():
        if folders.setdefault(site.party.id, site.folder) != site.folder:
            raise UsageError(f"two folders have a party {site.party.id}: {', '.join(given)}")


def _print(context: CommandContext, reports: list[SuiteReport], *, as_json: bool) -> None:
    if as_json:
        print_json(context.out, "weft.party.suite/1", suites=[as_dict(one) for one in reports])
        return
    for at, report in enumerate(reports):
        context.out.write(("\n" if at else "") + f"{clean(report.suite)}\n")
        for note in report.notes:
            context.out.write(f"note: {clean(note)}\n")
        context.out.write("\n")
        rows = [
            (
                one_line(one.task, 40),
                one.status,
                "" if one.seconds is None else duration(one.seconds),
                one_line(_metrics(one.metrics), 100),
            )
            for one in report.results
        ]
        print_table(context.console(), ("TASK", "STATUS", "TIME", "METRICS"), rows)
        lost = [(f"party {one.party}, {one.table}", one.reason) for one in report.uploads if one.reason]
        for name, reason in (*lost, *((one.task, one.reason) for one in report.results if one.reason)):
            context.out.write(f"\n{one_line(name, 80)}: {clean(reason)}\n")


def _metrics(found: Mapping[str, float]) -> str:
    """Return the metrics that tell most: `evaluation_0 train auc` is shown as `train auc`."""

    def rank(name: str) -> int:
        kind = name.rpartition(" ")[2]
        return _FIRST.index(kind) if kind in _FIRST else len(_FIRST) + kind.startswith("intersect_")

    chosen = sorted(found, key=rank)[:_METRICS]
    return ", ".join(f"{name.partition(' ')[2] or name} {found[name]:.4g}" for name in chosen)
