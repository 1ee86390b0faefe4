"""The commands of `weft party` about what others may do here: policy, tables, grant, revoke, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import AsJson, Given
from weft.cli.parsing import CommandParameter
from weft.cli.parties import Folder, party_app, site_of
from weft.cli.party_jobs import client_of
from weft.cli.tables import clean, one_line, print_json, print_table
from weft.model.errors import NotFoundError, UsageError
from weft.model.masking import without_passwords
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.cli.context import CommandContext
    from weft.parties.policy import SitePolicy

Partner = Annotated[str, CommandParameter(help="The id of another party: the initiator of its jobs.")]
Namespace = Annotated[str, CommandParameter(help="The namespace of the table; * for all.")]
Name = Annotated[str, CommandParameter(help="The name of the table; * for all.")]


@party_app.command
def policy(
    *,
    approval: Annotated[
        str | None, CommandParameter(help="Let jobs of other parties wait for approval: never or always.")
    ] = None,
    data: Annotated[
        str | None, CommandParameter(help="Which tables they may use: granted, or open for all tables.")
    ] = None,
    ids: Annotated[
        str | None, CommandParameter(help="Whether a raw intersection may show ids of rows: private or shown.")
    ] = None,
    queue: Annotated[
        str | None, CommandParameter(help="The order of jobs that wait for cores: backfill, fifo, priority or fair.")
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Show what other parties may do here, or change it; a server that runs takes it at once.

    A change of a file that is wrong keeps what is right of it.
    """
    site = site_of(context, folder)
    from msgspec.structs import replace

    from weft.parties.audit import AuditLog
    from weft.parties.policy import POLICY, read_policy, salvaged_policy, write_policy

    given = {"approval": approval, "data": data, "ids": ids, "queue": queue}
    changes = {name: word for name, word in given.items() if word is not None}
    if not changes:
        found = read_policy(site.folder)
    else:
        before, lost = salvaged_policy(site.folder)
        found = replace(before, **changes)
        write_policy(site.folder, found)
        for name in (one for one in lost if one not in changes):
            now = clean(str(getattr(found, name, "") or "left out"))
            context.say(f"warning: {clean(name)} was wrong in {POLICY}, and is {now} now")
        told = ", ".join(f"{name} {word}" for name, word in changes.items())
        AuditLog(site.audit, site.id, context.clock).append("note", reason=f"policy: {told}")
    _print_policy(context, found, as_json=as_json)


@party_app.command
def tables(*, as_json: AsJson = False, folder: Folder = None, context: Given) -> None:
    """List the tables of the party, and which parties may use them."""
    client = client_of(context, folder)
    found = client.post("weft/tables")
    if as_json:
        print_json(context.out, "weft.party.tables/1", tables=found)
        return
    rows = [
        (
            one_line(one["namespace"], 40),
            one_line(one["name"], 60),
            f"{one['rows']:,}" if one["rows"] is not None else "",
            str(one["columns"]),
            one_line(", ".join(one["granted"]) or ("all" if one["open"] else "nobody"), 60),
        )
        for one in found
    ]
    print_table(context.console(), ("NAMESPACE", "NAME", "ROWS", "COLUMNS", "MAY BE USED BY"), rows)
    if not found:
        context.say("the party has no tables: weft party upload FILE --namespace NAMESPACE --name NAME")


@party_app.command
def grant(party: Partner, /, *, namespace: Namespace, name: Name, folder: Folder = None, context: Given) -> None:
    """Let the jobs of another party use a table. It stays here; what they learn depends on the components."""
    site = site_of(context, folder)
    from weft.parties.client import SiteClient
    from weft.parties.peers import Peers

    client = SiteClient.of(site)
    client.post("permission/grant", _granted(party, namespace, name))
    if Peers(site).get(party) is None:
        context.say(f"warning: party {one_line(party)} is not known here yet: weft party join TEXT")
    known = client.post("weft/tables")
    if not any(party in one["granted"] for one in known):
        context.say(f"warning: there is no table {one_line(namespace)}.{one_line(name)} yet: weft party tables")
    context.say(f"jobs of party {one_line(party)} may use {one_line(namespace)}.{one_line(name)}")


@party_app.command
def revoke(party: Partner, /, *, namespace: Namespace, name: Name, folder: Folder = None, context: Given) -> None:
    """Take a grant back; a job that runs goes on."""
    client_of(context, folder).post("permission/delete", _granted(party, namespace, name))
    context.say(f"new jobs of party {one_line(party)} may not use {one_line(namespace)}.{one_line(name)}")


@party_app.command
def drop(*, namespace: Namespace, name: Name, folder: Folder = None, context: Given) -> None:
    """Delete a table of the party."""
    client = client_of(context, folder)
    if not any((one["namespace"], one["name"]) == (namespace, name) for one in client.post("weft/tables")):
        raise NotFoundError(f"there is no table {namespace}.{name}", hint="List them: weft party tables")
    client.post("table/delete", {"namespace": namespace, "table_name": name})
    context.say(f"the table {one_line(namespace)}.{one_line(name)} is deleted")


@party_app.command
def keys(
    *,
    add: Annotated[str | None, CommandParameter(help="Make a key for a client of this name.")] = None,
    remove: Annotated[str | None, CommandParameter(help="Remove the key of this client.")] = None,
    folder: Folder = None,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """List the clients that have keys, or make or remove a key. A new secret is shown once."""
    site = site_of(context, folder)
    from weft.parties.client_keys import OWNER, add_key, read_keys, remove_key

    if add is not None:
        new = add_key(site.folder, add)
        if as_json:
            print_json(context.out, "weft.party.key/1", **as_dict(new))
            return
        context.out.write(f"app key     {new.app_key}\nsecret key  {new.secret_key}\n")
        context.say(f"The client runs: flow init --app-key {new.app_key} --secret-key SECRET")
        return
    known = read_keys(site.folder)
    if remove is not None:
        found = [one.app_key for one in known.values() if remove in (one.user, one.app_key)]
        if remove == OWNER or not found:
            raise UsageError(
                f"{remove} has no key that can be removed",
                hint=f"List them: weft party keys. The command line signs with that of {OWNER}.",
            )
        for app_key in found:
            remove_key(site.folder, app_key)
        context.say(f"the key of {one_line(remove)} is removed")
        return
    if as_json:
        print_json(
            context.out,
            "weft.party.keys/1",
            keys=[{"app_key": one.app_key, "user": one.user} for one in known.values()],
        )
        return
    print_table(context.console(), ("CLIENT", "APP KEY"), [(one_line(one.user), one.app_key) for one in known.values()])


def _granted(party: str, namespace: str, name: str) -> dict[str, Any]:
    return {"party_id": party, "dataset": {"namespace": namespace, "name": name}}


def _print_policy(context: CommandContext, found: SitePolicy, *, as_json: bool) -> None:
    if as_json:
        shown = as_dict(found) | {"database": without_passwords(found.database)}
        print_json(context.out, "weft.party.policy/1", **shown)
        return
    from weft.parties.policy import policy_lines

    for line in policy_lines(found):
        context.out.write(f"{line.field:<8}  {clean(line.value)}: {line.meaning}\n")
