"""HeteroPearson: correlations of features, within each party and between the guest and each host.

Correlations across parties are products of standardized columns, in fixed point. The guest encrypts its rows, with
several columns side by side in a number; a host multiplies them by its own columns and returns encrypted sums over the
rows. FATE uses secret shares for this, and the same encryption to make their triples: shares alone need a third party.

Who learns what: guest and host learn the correlations of their features, under anonymous names, and which columns are
constant, but no rows. A host does not learn those of the guest with other hosts, and nobody learns those between hosts.
Many correlations and few rows tell much: with as many features of the guest as rows they are enough to solve for the
columns of a host. So there must be at least `LEAST_ROWS_PER_FEATURE` times as many rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec
import numpy as np

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.frontends.federated.components.columns import (
    ANONYMOUS,
    anonymous_names,
    chosen_features,
    numbers_of,
    with_anonymous,
)
from weft.frontends.federated.components.inputs import number, only_frame, only_model, refuse_values
from weft.frontends.federated.components.secure_trees import message_as
from weft.frontends.federated.components.vertical import check_rows
from weft.frontends.federated.crypto.histograms import capacity
from weft.frontends.federated.crypto.keys import cipher_of, make_keys, read_key
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.frame import PartyFrame
    from weft.frontends.federated.crypto.ciphers import PrivateKey
    from weft.frontends.federated.schema import Party

Array = np.ndarray[Any, Any]
LEAST_ROWS_PER_FEATURE: Final = 2
_SCALE: Final = 24
_SMALLEST: Final = 1e-8


class _PearsonPlan(msgspec.Struct, frozen=True):
    """What the guest tells a host: names of its features (None if it wants no correlations), and whether they vary."""

    names: list[str] | None
    varies: list[bool]


class _PearsonAnswer(msgspec.Struct, frozen=True):
    """What a host answers: the same of its features, and for each varying one encrypted products with the guest's."""

    names: list[str]
    varies: list[bool]
    products: list[Any]


def run(part: ComponentPart) -> PartOutput:
    """Compute correlations. UsageError: a parameter or a column is not possible. PartyMessageError: a wrong message."""
    if only_model(part) is not None:
        return PartOutput(data=(only_frame(part),))
    frame = only_frame(part)
    names = _chosen(part, frame)
    bits = number(part, "fixpoint_bit_length", 2048, least=1024)
    if part.parameters.get("use_mix_rand"):
        part.tracker.log("use_mix_rand has no effect: all random numbers are those of the operating system")
    matrix = np.column_stack([numbers_of(part, frame, name) for name in names])
    refuse_values(part, matrix, names, np.isnan(matrix), "Set missing_fill before it.")
    if len(matrix) < 2:
        raise UsageError(f"{part.component}: there are {len(matrix)} rows at {part.here}; correlations need two")
    standard, varies = _standardized(matrix)
    local = _correlations(standard.T @ standard / len(standard), varies, varies)
    model: dict[str, Any] = {"kind": part.module, "features": names, "local_corr": local}
    model[ANONYMOUS] = {name: one for name, one in anonymous_names(part, frame).items() if name in names}
    if part.parameters.get("calc_local_vif") is not False:
        model["local_vif"] = _inflation(standard, varies)
    cross = part.parameters.get("cross_parties") is not False
    if part.here.role == GUEST:
        model["hosts"] = _ask_hosts(part, model, standard, varies, int(bits), cross=cross)
    else:
        model["guest"] = _answer_guest(part, model, standard, varies, cross=cross)
    _tell(part, model)
    return PartOutput(data=(with_anonymous(frame, anonymous_names(part, frame)),), model=model)


def _chosen(part: ComponentPart, frame: PartyFrame) -> list[str]:
    given = part.parameters
    if given.get("column_indexes") == -1 and given.get("column_names"):
        raise UsageError(
            f"{part.component}: column_names are set, and column_indexes is -1", hint="Set column_indexes to []."
        )
    found = chosen_features(part, frame, given, "column_indexes", "column_names", nothing=True)
    if not found:
        raise UsageError(
            f"{part.component}: no column of {part.here} is chosen", hint="Set column_indexes to -1 for all."
        )
    return found


def _standardized(matrix: Array) -> tuple[Array, Array]:
    """Return columns with mean 0 and deviation 1 (0 if constant), and whether each varies."""
    centred = matrix - matrix.mean(axis=0)
    largest = np.abs(matrix).max(axis=0)
    deviation = centred.std(axis=0)
    varies = deviation > largest * 1e-14
    return np.where(varies, centred, 0.0) / np.where(varies, deviation, 1.0), varies


def _correlations(products: Array, rows: Array, columns: Array) -> list[list[float | None]]:
    """Return correlations as JSON: None for constant columns."""
    known = np.clip(products, -1.0, 1.0)
    return [
        [float(known[i, j]) if rows[i] and columns[j] else None for j in range(known.shape[1])]
        for i in range(known.shape[0])
    ]


def _inflation(standard: Array, varies: Array) -> list[float | None]:
    """Return the variance inflation factor of each column; None if it is constant, or a combination of others."""
    kept = standard[:, varies]
    values, vectors = np.linalg.eigh(kept.T @ kept / len(kept))
    empty = values < _SMALLEST
    exact = (vectors[:, empty] ** 2).sum(axis=1) > _SMALLEST
    factors = (vectors[:, ~empty] ** 2 / values[~empty]).sum(axis=1)
    found: list[float | None] = [None] * len(varies)
    for at, factor, whole in zip(np.flatnonzero(varies), factors, exact, strict=True):
        found[at] = None if whole else float(factor)
    return found


# ------------------------------------------------------------------------------------------------------ across parties


def _ask_hosts(
    part: ComponentPart, model: dict[str, Any], standard: Array, varies: Array, bits: int, *, cross: bool
) -> dict[str, Any]:
    """Return anonymous names of the features of each host, and correlations with those of the guest in rows."""
    hosts, rows = part.all_of(HOST), len(standard)
    names = list(model[ANONYMOUS].values())
    part.channel.send("plan", {"names": names if cross else None, "varies": varies.tolist()}, hosts)
    if not cross or not hosts:
        return {}
    check_rows(part, rows)
    keys = make_keys(*cipher_of({"encrypt_param": {"key_length": bits}})[:2])
    part.channel.send("key", keys.public.to_wire(), hosts)
    packing = _Packing.of(rows, int(varies.sum()), capacity(keys.public))
    encrypted = [keys.public.encrypt(one).to_wire() for one in packing.joined(standard[:, varies])]
    part.channel.send("columns", encrypted, hosts)
    found = {}
    for done, host in enumerate(hosts):
        answer = message_as(_PearsonAnswer, part.channel.receive("products", host), host)
        if len(answer.names) != len(answer.varies) or len(answer.products) != len(packing.sizes):
            raise PartyMessageError(f"{host} has sent products that do not fit each other", party=host.id)
        _check_many(part, rows, len(answer.names), host)
        theirs = np.array(answer.varies, dtype=bool)
        products = np.zeros((len(varies), len(theirs)))
        products[np.ix_(varies, theirs)] = _opened(keys, packing, answer.products, int(theirs.sum()), host) / rows
        part.channel.send("correlations", products, host)
        found[host.id] = {"features": answer.names, "corr": _correlations(products, varies, theirs)}
        part.tracker.progress(done + 1, len(hosts))
    return found


def _opened(keys: PrivateKey, packing: _Packing, products: list[Any], columns: int, host: Party) -> Array:
    """Return decrypted products, shape (columns of the guest, columns of the host)."""
    parts = [np.empty((0, columns))]
    for size, wire in zip(packing.sizes, products, strict=True):
        values = keys.public.encrypted(wire)
        if values.shape != (columns,):
            raise PartyMessageError(f"{host} has sent another number of products", party=host.id)
        split = [packing.split(one, size) for one in keys.decrypt_integers(values)]
        parts.append(np.array(split, dtype=float).reshape(columns, size).T / 4.0**_SCALE)
    return np.vstack(parts)


def _answer_guest(
    part: ComponentPart, model: dict[str, Any], standard: Array, varies: Array, *, cross: bool
) -> dict[str, Any]:
    """Return anonymous names of the features of the guest, and correlations with those of the host in rows."""
    guests, rows = part.all_of(GUEST), len(standard)
    if not guests:
        return {}
    guest = guests[0]
    plan = message_as(_PearsonPlan, part.channel.receive("plan", guest), guest)
    if (plan.names is not None) != cross:
        raise UsageError(
            f"{part.component}: cross_parties differs between {part.here} and {guest}",
            hint="Set it in component_parameters.common.",
        )
    if plan.names is None:
        return {}
    if len(plan.names) != len(plan.varies):
        raise PartyMessageError(f"{guest} has sent a plan that is malformed", party=guest.id)
    check_rows(part, rows)
    _check_many(part, rows, len(plan.names), guest)
    key = read_key(part.channel.receive("key", guest))
    whole = np.rint(standard[:, varies] * 2.0**_SCALE).astype(np.int64)
    products = []
    for wire in message_as(list[Any], part.channel.receive("columns", guest), guest):
        column = key.encrypted(wire)
        if column.shape != (rows,):
            raise PartyMessageError(f"{guest} has sent columns of another number of rows", party=guest.id)
        products.append(column.dot(whole).masked().to_wire())
    names = list(model[ANONYMOUS].values())
    part.channel.send("products", {"names": names, "varies": varies.tolist(), "products": products}, guest)
    found = part.channel.receive("correlations", guest)
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f" or found.shape != (len(plan.names), len(names)):
        raise PartyMessageError(f"{guest} has sent correlations of another shape", party=guest.id)
    return {"features": plan.names, "corr": _correlations(found.T, varies, np.array(plan.varies, dtype=bool))}


def _check_many(part: ComponentPart, rows: int, features: int, other: Party) -> None:
    """Check that correlations with so many features do not tell the rows. UsageError: there are too few rows."""
    if rows < LEAST_ROWS_PER_FEATURE * features:
        raise UsageError(
            f"{part.component}: {rows} rows are too few for {features} features of {other}: correlations would tell "
            "it the rows",
            hint="Choose fewer columns with column_indexes.",
        )


class _Packing(NamedTuple):
    """Columns side by side in integers: the bits of each, and how many columns each integer has.

    A product of two standardized columns is at most the number of rows.
    """

    width: int
    sizes: list[int]

    @classmethod
    def of(cls, rows: int, columns: int, bits: int) -> Self:
        """Return how so many columns fit into integers of some bits."""
        width = 2 * _SCALE + rows.bit_length() + 2
        each = bits // width
        return cls(width, [min(each, columns - at) for at in range(0, columns, each)])

    def joined(self, matrix: Array) -> list[Array]:
        """Return arrays of integers, one for each row; the first column has the lowest bits."""
        whole = np.rint(matrix * 2.0**_SCALE).astype(np.int64).astype(object)
        found, at = [], 0
        for size in self.sizes:
            units = np.array([1 << (self.width * place) for place in range(size)], dtype=object)
            found.append(whole[:, at : at + size] @ units)
            at += size
        return found

    def split(self, value: int, size: int) -> list[int]:
        """Return the signed integers of a sum of joined ones."""
        found, half = [], 1 << (self.width - 1)
        for _ in range(size):
            low = (value + half) % (1 << self.width) - half
            found.append(low)
            value = (value - low) >> self.width
        return found


def _tell(part: ComponentPart, model: dict[str, Any]) -> None:
    """Show the correlations as the summary of FATE, which knows one host."""
    summary: dict[str, Any] = {"num_local_features": len(model["features"]), "local_corr": model["local_corr"]}
    if "local_vif" in model:
        summary["local_vif"] = dict(zip(model["features"], model["local_vif"], strict=True))
    other = model.get("guest") or next(iter(model.get("hosts", {}).values()), None)
    if other:
        summary |= {"num_remote_features": len(other["features"]), "corr": other["corr"]}
    part.tracker.summary(summary)
