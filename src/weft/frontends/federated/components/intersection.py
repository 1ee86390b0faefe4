"""Intersection: the rows that guest and all hosts have, in the order of the guest.

The guest learns which of its ids each host has. With `sync_intersect_ids` (the default) each host learns the common ids
among its own, and takes their order, so that later components work on equal rows; without, hosts keep nothing.

With ECDH and SPU at both parties (`components.spu`) the host learns the same. Where several hosts take part and learn
common ids, SPU would tell each host more, so it is not used.

A raw intersection sends hashes of the ids of the host to the guest, who can try ids until one fits. It runs between two
parties whose policies both show ids; between others ECDH takes its place.

With `cardinality_only` each party raises the hashes of all others, too, and shuffles them. All learn the number of
common ids alone; the guest sees the numbers for each group of parties as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.inputs import only_frame
from weft.frontends.federated.components.spu import agree_on_spu, common_ids
from weft.frontends.federated.crypto.orders import shuffled
from weft.frontends.federated.crypto.psi import (
    ECDH,
    METHODS,
    RSA,
    RsaBlinder,
    RsaSigner,
    in_random_order,
    power,
    shared_positions,
    tags,
)
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.schema import Party

RAW: Final = "raw"
_IGNORED: Final = ("intersect_cache_param", "run_cache", "repeated_id_process", "repeated_id_owner", "with_sample_id")


def run(part: ComponentPart) -> PartOutput:
    """Intersect. UsageError: a parameter is not possible, or an id stands twice."""
    frame = only_frame(part)
    method = _method(part)
    if len(set(frame.ids.tolist())) != len(frame):
        raise UsageError(f"{part.component}: an id stands in two rows of the table", hint="Keep one row for each id.")
    if _counts(part):
        kept, common = None, (_guest_count if part.here.role == GUEST else _host_count)(part, frame, method)
    else:
        others = part.all_of(HOST if part.here.role == GUEST else GUEST)
        methods = {one: _between(part, one, method) for one in others}
        method = ", ".join(dict.fromkeys(methods.values()))
        kept, common = (_guest if part.here.role == GUEST else _host)(part, frame, methods)
    rate = common / len(frame) if len(frame) else 0.0
    part.tracker.metric("train", "intersect_count", common)
    part.tracker.metric("train", "intersect_rate", rate)
    if not common:
        part.tracker.log("no id is common to all parties: compare their forms (blanks, zeros in front, capitals)")
    part.tracker.summary({"intersect_num": common, "intersect_rate": rate, "method": method})
    if kept is None:
        return PartOutput(data=(None,))
    if part.parameters.get("only_output_key"):
        kept = PartyFrame(kept.ids)
    return PartOutput(data=(kept,))


def _method(part: ComponentPart) -> str:
    given = str(part.parameters.get("intersect_method") or ECDH).lower()
    if given not in (*METHODS, RAW):
        raise UsageError(
            f"{part.component}: intersect_method is {given!r}", hint=f"Use one of {', '.join((*METHODS, RAW))}."
        )
    if str(part.parameters.get("join_method") or "inner_join") != "inner_join":
        raise UsageError(f"{part.component}: join_method must be inner_join", hint="left_join is not supported.")
    for name in _IGNORED:
        if part.parameters.get(name):
            part.tracker.log(f"{name} has no effect")
    if _counts(part) and given == RSA:
        part.tracker.log("rsa would tell the guest which ids are common: ecdh is used for cardinality_only")
        part.tracker.summary({"note": "cardinality_only with rsa: ecdh was used, since rsa shows which ids"})
        return ECDH
    if given == RAW and _counts(part):
        part.tracker.log("raw would tell the guest which ids are common: ecdh is used for cardinality_only")
        return ECDH
    return given


def _between(part: ComponentPart, other: Party, method: str) -> str:
    """Return the method between this part and another: raw only if both show ids, and the guest joins."""
    if method != RAW:
        return method
    at_guest = _raw_parameter(part, "join_role") in ("", GUEST)
    part.channel.send("shows", part.shows_ids and at_guest, other)
    if part.channel.receive("shows", other) is True and part.shows_ids and at_guest:
        return RAW
    why = "not both parties show ids (weft party policy --ids shown)" if at_guest else "the guest joins here"
    part.tracker.log(f"ecdh is used with {other} instead of raw: {why}")
    part.tracker.summary({"note": f"intersect_method raw: ecdh was used, since {why}"})
    return ECDH


def _raw_parameter(part: ComponentPart, name: str) -> str:
    """Return a parameter of raw intersections, which FATE has in three places; "" if it stands in none."""
    for group in ("raw_params", "encode_params"):
        of = part.parameters.get(group)
        if isinstance(of, Mapping) and of.get(name):
            return str(of[name])
    return str(part.parameters.get(name) or "")


def _plain_tags(part: ComponentPart, ids: list[str]) -> bytes:
    """Return hashes of ids that everybody can make; parts with other salts have none in common."""
    salt = _raw_parameter(part, "salt").encode()
    return tags([b"weft raw " + salt + b" " + id.encode() for id in ids])


def _counts(part: ComponentPart) -> bool:
    return bool(part.parameters.get("cardinality_only"))


def _synced(part: ComponentPart) -> bool:
    return part.parameters.get("sync_intersect_ids") is not False


def _guest(part: ComponentPart, frame: PartyFrame, methods: Mapping[Party, str]) -> tuple[PartyFrame | None, int]:
    hosts, ids = part.all_of(HOST), frame.ids.tolist()
    if (
        methods[hosts[0]] == ECDH
        and len(hosts) == 1
        and agree_on_spu(part, hosts[0], fits=len(frame) > 0, same=_synced(part))
    ):
        return _guest_with_spu(part, frame, hosts[0])
    theirs: dict[Party, dict[int, int]] = {}
    for host in hosts:
        mine, places = _ask(part, ids, host, methods[host])
        theirs[host] = dict(zip(mine.tolist(), places.tolist(), strict=True))
    common = [at for at in range(len(ids)) if all(at in places for places in theirs.values())]
    for host in hosts:
        if _synced(part):
            part.channel.send("rows", np.array([theirs[host][at] for at in common], dtype=np.int64), host)
        else:
            part.channel.send("count", len(common), host)
    return frame.take(np.array(common, dtype=np.int64)), len(common)


def _ask(part: ComponentPart, ids: list[str], host: Party, method: str) -> tuple[Any, Any]:
    """Return the positions of the ids that a host has, and those in its list."""
    channel = part.channel
    if method == RAW:
        return shared_positions(_plain_tags(part, ids), channel.receive("ids", host), host.id)
    if method == RSA:
        blinder = RsaBlinder(channel.receive("modulus", host), host.id)
        channel.send("blinded", blinder.blinded(ids), host)
        return shared_positions(blinder.tags(channel.receive("signed", host)), channel.receive("tags", host), host.id)
    secret = power(method)
    channel.send("points", secret.pack(secret.hashed(ids)), host)
    own = secret.again(channel.receive("points", host), host.id)
    return shared_positions(channel.receive("tags", host), tags(own), host.id)


def _host(part: ComponentPart, frame: PartyFrame, methods: Mapping[Party, str]) -> tuple[PartyFrame | None, int]:
    guest, channel = part.all_of(GUEST)[0], part.channel
    method = methods[guest]
    if (
        method == ECDH
        and len(part.all_of(HOST)) == 1
        and agree_on_spu(part, guest, fits=len(frame) > 0, same=_synced(part))
    ):
        return _host_with_spu(part, frame, guest)
    order = shuffled(len(frame))
    ids = [str(frame.ids[at]) for at in order.tolist()]
    if method == RAW:
        channel.send("ids", _plain_tags(part, ids), guest)
    elif method == RSA:
        signer = RsaSigner()
        channel.send("modulus", int(signer.n), guest)
        channel.send("tags", signer.signed_ids(ids), guest)
        channel.send("signed", signer.signed_blind(channel.receive("blinded", guest), guest.id), guest)
    else:
        secret = power(method)
        channel.send("points", secret.pack(secret.hashed(ids)), guest)
        channel.send("tags", tags(secret.again(channel.receive("points", guest), guest.id)), guest)
    if not _synced(part):
        return None, _count(channel.receive("count", guest), frame, guest)
    rows = _rows(channel.receive("rows", guest), len(frame), guest)
    return frame.take(order[rows]), len(rows)


def _guest_with_spu(part: ComponentPart, frame: PartyFrame, host: Party) -> tuple[PartyFrame, int]:
    ids, both = frame.ids.tolist(), _synced(part)
    found = common_ids(part, ids, host, receives=True, both=both)
    places = {id: at for at, id in enumerate(found)}
    kept = np.array([at for at, id in enumerate(ids) if id in places], dtype=np.int64)
    if both:
        part.channel.send("rows", np.array([places[ids[at]] for at in kept.tolist()], dtype=np.int64), host)
    else:
        part.channel.send("count", len(kept), host)
    return frame.take(kept), len(kept)


def _host_with_spu(part: ComponentPart, frame: PartyFrame, guest: Party) -> tuple[PartyFrame | None, int]:
    ids, both = frame.ids.tolist(), _synced(part)
    found = common_ids(part, ids, guest, receives=False, both=both)
    if not both:
        return None, _count(part.channel.receive("count", guest), frame, guest)
    rows = _rows(part.channel.receive("rows", guest), len(found), guest)
    places = {id: at for at, id in enumerate(ids)}
    try:
        return frame.take(np.array([places[found[at]] for at in rows.tolist()], dtype=np.int64)), len(rows)
    except KeyError:
        raise PartyMessageError(f"{guest} has sent ids that {part.here} does not have", party=guest.id) from None


def _rows(value: Any, count: int, guest: Party) -> Any:
    """Return the rows that the guest has chosen of `count` ones. PartyMessageError: they are none."""
    if not isinstance(value, np.ndarray) or value.dtype != np.int64 or value.ndim != 1:
        raise PartyMessageError(f"{guest} has sent rows of another form", party=guest.id)
    if len(value) and (value.min() < 0 or value.max() >= count or len(np.unique(value)) != len(value)):
        raise PartyMessageError(f"{guest} has sent rows that are none", party=guest.id)
    return value


def _guest_count(part: ComponentPart, frame: PartyFrame, method: str) -> int:
    """Let each party raise the hashes of all others and shuffle them, and count those that stand in all sets."""
    hosts, secret, channel = part.all_of(HOST), power(method), part.channel
    sets = {part.here: in_random_order(secret.hashed(frame.ids.tolist()))}
    for host in hosts:
        sets[host] = secret.again(channel.receive("points", host), host.id)
    for host in hosts:
        others = [one for one in sets if one != host]
        channel.send("raise", [secret.pack(sets[one]) for one in others], host)
        raised = channel.receive("raised", host)
        if not isinstance(raised, list) or len(raised) != len(others):
            raise PartyMessageError(f"{host} has sent another number of sets", party=host.id)
        for one, wire in zip(others, raised, strict=True):
            sets[one] = secret.read(wire, host.id)
    count = len(set.intersection(*map(set, sets.values())))
    channel.send("count", count, hosts)
    return count


def _host_count(part: ComponentPart, frame: PartyFrame, method: str) -> int:
    guest, secret, channel = part.all_of(GUEST)[0], power(method), part.channel
    channel.send("points", secret.pack(in_random_order(secret.hashed(frame.ids.tolist()))), guest)
    sets = channel.receive("raise", guest)
    if not isinstance(sets, list) or len(sets) != len(part.all_of(HOST)):
        raise PartyMessageError(f"{guest} has sent another number of sets", party=guest.id)
    raised = [secret.pack(in_random_order(secret.again(one, guest.id))) for one in sets]
    channel.send("raised", raised, guest)
    return _count(channel.receive("count", guest), frame, guest)


def _count(value: Any, frame: PartyFrame, guest: Party) -> int:
    if type(value) is not int or not 0 <= value <= len(frame):
        raise PartyMessageError(f"{guest} has sent a number of rows that is none", party=guest.id)
    return value
