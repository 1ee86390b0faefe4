"""The command `weft party output`: the rows that a component has made at this party, as CSV."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import Given
from weft.cli.parsing import CommandParameter
from weft.cli.parties import Folder, party_app
from weft.cli.party_jobs import client_of, file_to_write, job_of
from weft.cli.tables import short_path
from weft.model.errors import NotFoundError, UsageError
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.parties.client import SiteClient


@party_app.command
def output(
    target: Annotated[str, CommandParameter(help="JOB/COMPONENT, or JOB/COMPONENT/ROLE.")],
    /,
    *,
    table: Annotated[
        str | None, CommandParameter(help="The output, if the component has several: a name under `data` in the DSL.")
    ] = None,
    file: Annotated[
        Path | None, CommandParameter(name=["-o", "--output"], help="Write the rows here, not to the terminal.")
    ] = None,
    folder: Folder = None,
    context: Given,
) -> None:
    """Print the rows that a component of a job has made at this party, such as its predictions, as CSV."""
    client = client_of(context, folder)
    job, _, rest = target.partition("/")
    component, _, role = rest.partition("/")
    if not component:
        raise UsageError(f"{target!r} names no component", hint=f"Write {job}/COMPONENT; see: weft party show {job}")
    wanted = _part(client, job_of(client, job), role) | {"component_name": component}
    names = [one["data_name"] for one in client.post("tracking/component/output/data/table", wanted)]
    if table is None and len(names) > 1:
        raise UsageError(f"{component} has the outputs {', '.join(names)}", hint=f"Name one: --table {names[0]}")
    if table is not None and table not in names:
        raise NotFoundError(
            f"{component} has no output {table!r}", hint=did_you_mean(table, names, f"It has {', '.join(names)}.")
        )
    wanted["table"] = table or names[0]
    if file is not None:
        path = file_to_write(context, file)
        client.download("weft/output", wanted, path)
        context.out.write(f"{short_path(path, context.cwd)}\n")
        return
    with TemporaryDirectory(prefix="weft-") as scratch:
        rows = Path(scratch, "rows.csv")
        client.download("weft/output", wanted, rows)
        with rows.open(encoding="utf-8", newline="") as lines:
            shutil.copyfileobj(lines, context.out)


def _part(client: SiteClient, job: str, role: str) -> dict[str, Any]:
    """Return the part of this party in a job, the one with a role if it is named."""
    parts = [one for one in client.post("weft/job", {"job_id": job})["parts"] if one["here"]]
    roles = [one["role"] for one in parts]
    if role and role not in roles:
        raise NotFoundError(f"this party is no {role} of job {job}", hint=f"It is {', '.join(roles) or 'no part'}.")
    if not parts:
        raise NotFoundError(f"this party has no part in job {job}")
    found = next(one for one in parts if role in ("", one["role"]))
    return {"job_id": job, "role": found["role"], "party_id": found["party"]}
