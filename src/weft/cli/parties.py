"""The commands of `weft party`: who this party is, and which others it knows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import AsJson, Given
from weft.cli.context import CommandContext
from weft.cli.parsing import CommandGroup, CommandParameter
from weft.cli.tables import clean, iso, moment, one_line, print_json, print_table, short_path
from weft.model.errors import PartyUnreachableError, UnreadableError, UsageError, WeftError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.parties.invitations import Invitation
    from weft.parties.peers import Peer
    from weft.parties.site import PartySite

party_app = CommandGroup("party")

Folder = Annotated[
    Path | None, CommandParameter(name="--folder", help="The folder of the party; by default, the current folder.")
]
_SHOWN = 16
"""The characters of a fingerprint in tables."""


def site_of(context: CommandContext, folder: Path | None, *, keys: bool = True) -> PartySite:
    """Return the party of a folder. NotFoundError: it has none. MissingExtraError: a library is not installed.

    UnreadableError: a file of it is damaged; with `keys` also if it is a key or the certificate.
    """
    from weft.parties.extras import require_libraries

    require_libraries()
    from weft.parties.site import PartySite

    site = PartySite.open(context.cwd / (folder or ""))
    if keys:
        site.check_keys()
    return site


@party_app.command
def init(
    name: Annotated[str, CommandParameter(help="The name of the party, which others see.")],
    /,
    *,
    id: Annotated[str, CommandParameter(help="The id of the party, as in files of jobs.")],
    folder: Annotated[
        Path | None, CommandParameter(help="Make the party in this folder; by default, in one of its name.")
    ] = None,
    host: Annotated[str, CommandParameter(help="The name or address where others reach the party.")] = "127.0.0.1",
    listen: Annotated[
        str,
        CommandParameter(
            help="The address of this machine on which the server listens for other parties; by default that of --host "
            "if this machine has it, else all."
        ),
    ] = "",
    outbound: Annotated[
        bool, CommandParameter(help="Others cannot connect to the party: it connects to them, or to a relay.")
    ] = False,
    port: Annotated[int, CommandParameter(help="The port for other parties; 0: one that is free.")] = 0,
    http_port: Annotated[
        int, CommandParameter(help="The port for clients of the party, on 127.0.0.1; 0: one that is free.")
    ] = 0,
    cores: Annotated[int | None, CommandParameter(help="The cores for its jobs; by default, all.")] = None,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Make the folder of a party, with its keys and its certificate."""
    from weft.parties.extras import require_libraries

    require_libraries()
    from weft.parties.identity import read_certificate
    from weft.parties.site import PartySite

    if not name.strip():
        raise UsageError("the name of the party is empty", hint="Give a name, such as: weft party init bank --id 9999")
    place = context.cwd / (folder or _folder_name(name))
    site = PartySite.create(
        place,
        id,
        name=name,
        host="" if outbound else host,
        listen=listen,
        party_port=port,
        http_port=http_port,
        cores=cores,
        clock=context.clock,
    )
    fingerprint = read_certificate(site.certificate).fingerprint
    if as_json:
        print_json(context.out, "weft.party/1", **_own(site), fingerprint=fingerprint)
        return
    shown = short_path(place, context.cwd)
    listens = f"{site.address}, listening on {_everywhere(site.listen)}"
    context.out.write(
        f"party        {site.id}, {one_line(site.party.name)}\n"
        f"folder       {shown}\n"
        f"for parties  {listens if site.address else 'connects to others only'}\n"
        f"for clients  http://127.0.0.1:{site.party.http_port}/v1\n"
        f"keys         {shown}/keys, which only this user can read\n"
        f"certificate  {shown}/cert.pem\n"
        f"fingerprint  {fingerprint}\n"
    )
    context.say(
        f"Start its server:     weft party start --folder {shown}\n"
        f"Invite another party: weft party invite --folder {shown}"
    )


@party_app.command
def invite(
    *,
    folder: Folder = None,
    days: Annotated[int, CommandParameter(help="The days for which the invitation is valid.")] = 7,
    public: Annotated[
        bool, CommandParameter(help="Print one that introduces nobody here, so that it is no secret.")
    ] = False,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Print an invitation for another party, as one line."""
    site = site_of(context, folder)
    from weft.parties.identity import read_certificate
    from weft.parties.invitations import invite as invited

    introduces = not public and bool(site.address)
    text = invited(site, context.clock.wall(), days=days, introduces=introduces)
    fingerprint = read_certificate(site.certificate).fingerprint
    if as_json:
        document = {"invitation": text, "fingerprint": fingerprint, "introduces": introduces}
        print_json(context.out, "weft.party.invitation/1", **document)
        return
    context.out.write(text + "\n")
    if introduces:
        context.say("Send it in secret: it lets one party introduce itself here.")
    context.say(f"The other party runs: weft party join TEXT\nIt must see the fingerprint {fingerprint}")


@party_app.command
def join(
    text: Annotated[str, CommandParameter(help="The invitation of another party, or - for stdin.")],
    /,
    *,
    folder: Folder = None,
    replace: Annotated[bool, CommandParameter(help="Let a known party have new keys.")] = False,
    via: Annotated[
        str | None, CommandParameter(help="Reach the party through this one, a relay; '' for directly.")
    ] = None,
    relay: Annotated[bool, CommandParameter(help="Forward messages of other parties to this one.")] = False,
    role: Annotated[
        list[str] | None, CommandParameter(help="Let the party act in this role only; may be repeated.")
    ] = None,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Make the party of an invitation known, and introduce this one to it."""
    site = site_of(context, folder)
    from msgspec.structs import replace as changed

    from weft.parties.audit import AuditLog
    from weft.parties.invitations import invite as invited
    from weft.parties.invitations import join as joined
    from weft.parties.invitations import read_invitation
    from weft.parties.peers import Peers, check_roles

    check_roles(role or ())
    text = sys.stdin.read() if text == "-" else text  # as an argument others on this machine could see it
    now, known = context.clock.wall(), Peers(site)
    invitation = read_invitation(text, now)
    if via:
        known.check_relay(invitation.id, via)
    before = known.get(invitation.id)
    peer = joined(site, text, now, replace=replace)
    peer = changed(
        peer,
        via=peer.via if via is None else via,
        relays=peer.relays or relay,
        roles=peer.roles if role is None else tuple(role),
    )
    known.put(peer)
    own = invited(site, now)
    try:
        why = _introduced(invitation, own) if invitation.entry_key else ""
    except WeftError:
        if before is None:  # the invitation is worth nothing, so nobody may rely on it
            known.remove(peer.id)
        raise
    AuditLog(site.audit, site.id, context.clock).append(
        "note", peer=peer.id, reason=f"joined with certificate {peer.fingerprint}"
    )
    introduced = bool(invitation.entry_key) and not why
    if as_json:
        answer = None if introduced else own
        print_json(
            context.out, "weft.party.join/1", peer=_document(peer), introduced=introduced, invitation=answer, error=why
        )
        return
    context.say(f"party {peer.id} ({one_line(peer.name)}) is known, with the fingerprint {peer.fingerprint}")
    if introduced:
        context.say(f"party {peer.id} knows this party, too")
        return
    if why:
        context.say(f"it could not be told of this party: {clean(why)}")
        context.say(f"Give it this invitation, for `weft party join`, unless it knows party {site.id}:")
        context.out.write(own + "\n")


@party_app.command
def renew(*, folder: Folder = None, as_json: AsJson = False, context: Given) -> None:
    """Replace the certificate of the party; the others must then join again with --replace."""
    site = site_of(context, folder, keys=False)
    from weft.parties.audit import AuditLog
    from weft.parties.identity import read_certificate

    site.renew(context.clock)
    fingerprint = read_certificate(site.certificate).fingerprint
    AuditLog(site.audit, site.id, context.clock).append("note", reason=f"renewed certificate {fingerprint}")
    if as_json:
        print_json(context.out, "weft.party/1", **_own(site), fingerprint=fingerprint)
        return
    context.out.write(f"{fingerprint}\n")
    context.say("Other parties refuse this one until they join again: weft party invite --public")


@party_app.command
def remove(
    id: Annotated[str, CommandParameter(help="The id of a known party.")],
    /,
    *,
    folder: Folder = None,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Remove a known party: its messages are refused from now on."""
    site = site_of(context, folder)
    from weft.parties.audit import AuditLog
    from weft.parties.peers import Peers

    known = Peers(site)
    behind = known.through(id)
    known.remove(id)
    AuditLog(site.audit, site.id, context.clock).append("note", peer=id, reason="removed")
    if as_json:
        print_json(context.out, "weft.party.remove/1", party=id)
        return
    context.say(f"party {id} is removed")
    if behind:
        context.say(f"warning: party {', '.join(behind)} is reached through it: join again without --via {id}")


@party_app.command
def peers(*, folder: Folder = None, as_json: AsJson = False, context: Given) -> None:
    """List the known parties."""
    site = site_of(context, folder)
    from weft.parties.identity import read_certificate
    from weft.parties.peers import Peers

    table = Peers(site)
    known = list(table)
    if as_json:
        problems = list(table.problems)
        print_json(context.out, "weft.party.peers/1", peers=[_document(one) for one in known], problems=problems)
        return
    rows = [
        (
            one.id,
            one_line(one.name, 60),
            f"via {one.via}" if one.via else one.address or "polls",
            ", ".join(one.roles) or "any",
            one.fingerprint[:_SHOWN],
            moment(read_certificate(one.certificate.encode()).ends, form="%Y-%m-%d"),
        )
        for one in known
    ]
    print_table(context.console(), ("PARTY", "NAME", "ADDRESS", "ROLES", "FINGERPRINT", "UNTIL"), rows)
    if not known:
        context.say(f"party {site.id} knows no other party: weft party join TEXT")
    for problem in table.problems:
        context.say(f"warning: {clean(problem)}")


@party_app.command
def audit(
    *,
    folder: Folder = None,
    number: Annotated[int, CommandParameter(name=["-n", "--number"], help="Show the last so many; 0: all.")] = 50,
    verify: Annotated[
        bool, CommandParameter(help="Check the chain of hashes instead, from the first line on.")
    ] = False,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Show the decisions about messages of other parties, or check that none was changed."""
    site = site_of(context, folder)
    from collections import deque

    from weft.parties.audit import read_audit, verify_audit

    if verify:
        broken = verify_audit(site.audit)
        if broken is not None:
            raise UnreadableError(
                f"line {broken} of {site.audit} was changed, inserted, or follows a removed one",
                hint="Compare with a copy of the log. The lines before it are as they were written.",
            )
        last = deque(read_audit(site.audit), 1)
        count, digest = (last[0].seq, last[0].hash) if last else (0, "")
        if as_json:
            print_json(context.out, "weft.party.audit.check/1", records=count, hash=digest)
        else:
            context.out.write(f"{count:,} records are as they were written; the last hash is {digest or 'none'}\n")
        return
    records = deque(read_audit(site.audit), number or None)
    if as_json:
        documents = [{**as_dict(one), "time": iso(one.time)} for one in records]
        print_json(context.out, "weft.party.audit/1", records=documents)
        return
    rows = [
        (str(one.seq), moment(one.time), one.peer, one.path, one.decision, one_line(one.reason, 200)) for one in records
    ]
    print_table(context.console(), ("SEQ", "TIME", "PARTY", "PATH", "DECISION", "REASON"), rows)


def _introduced(invitation: Invitation, own: str) -> str:
    """Introduce this party to the one of an invitation; return why it does not answer. WeftError: it refuses."""
    from weft.parties.calling import introduce

    try:
        introduce(invitation, own)
    except PartyUnreachableError as error:
        return error.message
    return ""


def _everywhere(address: str) -> str:
    """Return an address to listen on in words."""
    return "all addresses" if address in ("::", "0.0.0.0") else address


def _folder_name(name: str) -> str:
    """Return a folder for a party of this name: one below the current folder."""
    return "".join(c if c.isalnum() or c in "_-" else "-" for c in name) or "party"


def _own(site: PartySite) -> dict[str, Any]:
    document = {**as_dict(site.party), "address": site.address, "folder": str(site.folder)}
    return document | {"created": iso(site.party.created)}


def _document(peer: Peer) -> dict[str, Any]:
    document = as_dict(peer)
    return document | {"signing_key": peer.signing_key.hex(), "joined": iso(peer.joined)}
