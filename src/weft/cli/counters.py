"""The command that prints counters of training jobs: `weft metrics`."""

from __future__ import annotations

from weft.cli.arguments import AsJson, Given, Where, service_of
from weft.cli.tables import print_json


def metrics(*, as_json: AsJson = False, where: Where, context: Given) -> None:
    """Print the counters of the training jobs of a project in the text form of Prometheus."""
    from weft.store.tallies import as_rows, as_text

    counters = service_of(context, where).metrics()
    if as_json:
        print_json(context.out, "weft.metrics/1", counters=as_rows(counters))
        return
    context.out.write(as_text(counters))
