"""The command that shows the progress of a run of any process: `weft watch`."""

from __future__ import annotations

from weft.cli.arguments import AsJson, Given, Where, service_of, where_options
from weft.cli.logs import POLL_S
from weft.cli.steps import print_next, print_steps, run_document
from weft.cli.tables import print_json


def watch(run: str, /, *, as_json: AsJson = False, where: Where, context: Given) -> None:
    """Show the progress of a run until it ends."""
    from weft.cli.progress import make_progress

    service = service_of(context, where)
    found = service.show(run)
    steps = [step.name for step in found.steps]
    progress = make_progress(
        steps,
        context.err,
        lambda: context.console(context.err),
        context.clock.wall,
        quiet=as_json,
        jobs=found.folder if found.of_jobs else None,
    )
    options = where_options(context, where)
    context.follows = True
    context.hint = f"The run goes on. Its state: weft show {found.id}{options}"
    with progress:
        for record in service.watch(found.id, lambda: context.pause(POLL_S)):
            progress.add(record)
    found = service.show(found.id)
    if as_json:
        print_json(context.out, "weft.run/1", run=run_document(found))
        return
    print_steps(context, found)
    context.out.write(f"\n{found.id} {found.state}\n")
    if not found.of_session:
        print_next(context, found, found.state, options)
