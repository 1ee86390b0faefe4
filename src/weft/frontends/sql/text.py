"""Relations as DuckDB SQL. Columns are named by their positions: c0, c1, ..."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Final

from weft.frontends.sql.expressions import Expression, identifier, joined, listed, literal
from weft.frontends.sql.relations import (
    Distinct,
    Filter,
    Grouping,
    Join,
    JoinCondition,
    JoinKind,
    KeyFilter,
    Limit,
    MayMatch,
    Project,
    Received,
    Relation,
    Reuse,
    RowsOf,
    Scan,
    SetOperation,
    Shared,
    Sort,
    SortSample,
    Unnest,
    Values,
    Window,
)

if TYPE_CHECKING:
    from weft.frontends.sql.expressions import Order


def name_of(position: int) -> str:
    """Return the name of an output column."""
    return f"c{position}"


def received(exchange: int) -> str:
    """Return the name of the table with the rows of an exchange."""
    return f"received_{exchange}"


FILTER_BITS: Final = 1 << 23
"""The bits of a filter of keys, a power of two: 1 MiB, of which two million keys set less than a quarter."""
COUNTED: Final = "counted"
"""The variable of DuckDB with the number of the rows that a sample was taken of."""
FILTERING_ROWS: Final = (1 << 23) // 12
"""The rows by whose keys DuckDB filters a scan before a join, at most: its filter of them has 1 MiB.

It has 12 bits for a key, rounded up to a power of two. A larger filter leaves the caches of a core, and costs more than
looking for the keys in the table of the join.
"""


def rows_in(table: str) -> str:
    """Return the variable of DuckDB with the number of the rows of a table of an exchange, NULL while they arrive."""
    return f"rows_in_{table}"


def sort_key(orders: Sequence[Order]) -> str:
    """Return the SQL of a key of bytes that compares as rows do by `orders`."""
    keys = ", ".join(f"{one.by.text(name_of)}, {literal(one.direction)}" for one in orders)
    return f"create_sort_key({keys}, 0::BIGINT, 'ASC NULLS LAST')"  # DuckDB makes keys of up to eight bytes a number


def no_rows(columns: Iterable[tuple[str, str]]) -> str:
    """Return a query for columns, each a name and a type, without rows."""
    return f"SELECT {', '.join(f'CAST(NULL AS {of}) AS {identifier(name)}' for name, of in columns)} WHERE FALSE"


def sql_of(relation: Relation, rows_of: RowsOf) -> str:
    """Return a query for a relation; `rows_of` returns the SQL of the rows of each of its scans."""
    return _Writer(rows_of).write(relation)


class _Writer:
    def __init__(self, rows_of: RowsOf) -> None:
        self._rows_of = rows_of

    def write(self, relation: Relation) -> str:
        return self._writer_of(type(relation))(self, relation)

    def _from(self, relation: Relation, alias: str = "") -> str:
        return f"({self.write(relation)}){' AS ' + alias if alias else ''}"

    @singledispatchmethod
    def _write(self, relation: Relation) -> str:
        raise AssertionError(f"no SQL for {type(relation).__name__}")

    @_write.register
    def _(self, relation: Scan) -> str:
        read = ", ".join(
            # The types of one split can be others than those of all files.
            f"CAST({identifier(name) if name else 'TRUE'} AS {of}) AS {name_of(at)}"
            for at, (name, of) in enumerate(relation.columns)
        )
        output = ", ".join(f"{name_of(at)} AS {name_of(to)}" for to, at in enumerate(relation.output))
        inner = f"SELECT {read or '1'} FROM {self._rows_of(relation)}"
        where = _where(relation.filters, name_of)
        return f"SELECT {output or '1 AS c0'} FROM ({inner}){where}"

    @_write.register
    def _(self, relation: Values) -> str:
        if not relation.rows:
            return no_rows((name_of(at), of) for at, of in enumerate(relation.types))
        rows = (
            _columns([joined(f"CAST({{}} AS {of})", e, type=of) for e, of in zip(row, relation.types, strict=True)])
            for row in relation.rows
        )
        return " UNION ALL ".join(f"SELECT {row}" for row in rows)

    @_write.register
    def _(self, relation: Received) -> str:
        if relation.sent is None:
            return f"SELECT * FROM {received(relation.exchange)}"
        places = {at: name_of(to) for to, at in enumerate(relation.sent)}
        columns = (f"{places.get(at, f'CAST(NULL AS {of})')} AS {name_of(at)}" for at, of in enumerate(relation.types))
        return f"SELECT {', '.join(columns)} FROM {received(relation.exchange)}"

    @_write.register
    def _(self, relation: Reuse) -> str:
        return f"SELECT * FROM shared_{relation.number}"

    @_write.register
    def _(self, relation: Shared) -> str:
        definition = self.write(relation.definition)
        return f"WITH shared_{relation.number} AS MATERIALIZED ({definition}) SELECT * FROM {self._from(relation.body)}"

    @_write.register
    def _(self, relation: Filter) -> str:
        return f"SELECT * FROM {self._from(relation.input)}{_where(relation.conditions, name_of)}"

    @_write.register
    def _(self, relation: Project) -> str:
        return f"SELECT {_columns(relation.expressions)} FROM {self._from(relation.input)}"

    @_write.register
    def _(self, relation: KeyFilter) -> str:
        bits = f"bitstring_agg({_bit(relation.keys)}, 0, {FILTER_BITS - 1})"
        return f"SELECT {bits} AS c0 FROM {self._from(relation.input)}"

    @_write.register
    def _(self, relation: MayMatch) -> str:
        # A variable is a constant of the query, where DuckDB copies the value of a subquery for each row.
        bits = f"CAST(getvariable({literal(received(relation.filter.exchange))}) AS BIT)"
        found = f"get_bit({bits}, {_bit(relation.keys)})"
        return f"SELECT * FROM {self._from(relation.input)} WHERE {found} IS DISTINCT FROM 0"

    @_write.register
    def _(self, relation: Grouping) -> str:
        groups = [group.text(name_of) for group in relation.groups]
        columns = [*groups, *(one.expression.text(name_of) for one in relation.aggregates)]
        columns += [f"GROUPING({', '.join(groups[at] for at in one)})" for one in relation.functions]
        output = ", ".join(f"{text} AS {name_of(at)}" for at, text in enumerate(columns))
        tail = ""
        if relation.sets:
            sets = ", ".join(f"({', '.join(groups[at] for at in one)})" for one in relation.sets)
            tail = f" GROUP BY GROUPING SETS ({sets})"
        elif groups:
            tail = f" GROUP BY {', '.join(groups)}"
        return f"SELECT {output} FROM {self._from(relation.input)}{tail}"

    @_write.register
    def _(self, relation: Sort) -> str:
        orders = ", ".join(order.expression.text(name_of) for order in relation.orders)
        by = f" ORDER BY {orders}" if orders else ""
        return f"SELECT * FROM {self._from(relation.input)}{by}{_limit(relation.limit, relation.offset)}"

    @_write.register
    def _(self, relation: SortSample) -> str:
        counted = f"CAST(getvariable('{COUNTED}') AS BIGINT)"
        return f"SELECT {sort_key(relation.orders)} AS c0, {counted} AS c1 FROM {self._from(relation.input)}"

    @_write.register
    def _(self, relation: Limit) -> str:
        return f"SELECT * FROM {self._from(relation.input)}{_limit(relation.limit, relation.offset)}"

    @_write.register
    def _(self, relation: Distinct) -> str:
        targets = listed(relation.targets).text(name_of)
        orders = ", ".join(order.expression.text(name_of) for order in relation.orders)
        tail = f" ORDER BY {orders}" if orders else ""
        if not relation.on and len(relation.targets) == len(relation.types):
            return f"SELECT DISTINCT * FROM {self._from(relation.input)}{tail}"
        return f"SELECT DISTINCT ON ({targets}) * FROM {self._from(relation.input)}{tail}"

    @_write.register
    def _(self, relation: SetOperation) -> str:
        word = f"{relation.kind} ALL" if relation.all else relation.kind
        return f"({self.write(relation.left)}) {word} ({self.write(relation.right)})"

    @_write.register
    def _(self, relation: Window) -> str:
        width = len(relation.input.types)
        more = ", ".join(f"{one.text(name_of)} AS {name_of(width + at)}" for at, one in enumerate(relation.functions))
        return f"SELECT *, {more} FROM {self._from(relation.input)}"

    @_write.register
    def _(self, relation: Unnest) -> str:
        width = len(relation.input.types)
        more = (f"UNNEST({one.text(name_of)}) AS {name_of(width + at)}" for at, one in enumerate(relation.lists))
        return f"SELECT *, {', '.join(more)} FROM {self._from(relation.input)}"

    # ------------------------------------------------------------------------------------------------------------ joins

    @_write.register
    def _(self, relation: Join) -> str:
        if relation.kind is JoinKind.MARK:
            return self._mark(relation)
        if relation.kind is JoinKind.SINGLE:
            return self._single(relation)
        left, right = relation.left, relation.right
        output = [f"l.{name_of(at)}" for at in range(len(left.types))]
        if relation.kind not in (JoinKind.SEMI, JoinKind.ANTI):
            output += [f"r.{name_of(at)}" for at in range(len(right.types))]
        columns = ", ".join(f"{text} AS {name_of(at)}" for at, text in enumerate(output))
        condition = _condition(relation)
        sides = f"{self._side(relation, 'l')} {{}} {self._side(relation, 'r')}"
        if not condition and relation.kind is JoinKind.INNER:
            return f"SELECT {columns} FROM {sides.format('CROSS JOIN')}"
        word = "FULL OUTER" if relation.kind is JoinKind.FULL else relation.kind
        before, _, after = sides.partition("{}")
        return f"SELECT {columns} FROM {before}{word} JOIN{after} ON {condition or 'TRUE'}"

    def _side(self, relation: Join, alias: str) -> str:
        """Write a side of a join: a filtering one so that its keys, if they are few, filter the scan of the other side.

        DuckDB makes a filter only of a side that has a condition, and rows of an exchange have none any more.
        """
        side = relation.left if alias == "l" else relation.right
        able = relation.kind is JoinKind.INNER or (relation.kind is JoinKind.SEMI and alias == "r")
        if not able or not isinstance(side, Received) or not side.filtering:
            return self._from(side, alias)
        keys = [(one.left if alias == "l" else one.right) for one in relation.conditions if one.operator == "="]
        if not len(keys) == len(relation.conditions) == 1:
            return self._from(side, alias)
        many = f"getvariable('{rows_in(received(side.exchange))}') > {FILTERING_ROWS}"
        return f"(SELECT * FROM {self._from(side)} WHERE {many} OR {keys[0].text(name_of)} IS NOT NULL) AS {alias}"

    def _mark(self, relation: Join) -> str:
        """Write a mark join as the subquery that it stands for: EXISTS, or IN with its three values."""
        keys = [one for one in relation.conditions if one.operator == "IS NOT DISTINCT FROM"]
        compared = [one for one in relation.conditions if one.operator != "IS NOT DISTINCT FROM"]
        where = " AND ".join(_comparison(one) for one in keys)
        rows = f"FROM {self._from(relation.right, 'r')}{' WHERE ' + where if where else ''}"
        if not compared:
            mark = f"EXISTS (SELECT 1 {rows})"
        else:
            left = ", ".join(one.left.text(_of("l")) for one in compared)
            right = ", ".join(one.right.text(_of("r")) for one in compared)
            mark = f"(({left}) {compared[0].operator} ANY (SELECT {right} {rows}))"
        return f"SELECT l.*, {mark} AS {name_of(len(relation.left.types))} FROM {self._from(relation.left, 'l')}"

    def _single(self, relation: Join) -> str:
        """Write a left join with at most one match for each row as a scalar subquery, which checks that."""
        width = len(relation.left.types)
        fields = ", ".join(f"{name_of(at)} := r.{name_of(at)}" for at in range(len(relation.right.types)))
        condition = _condition(relation)
        where = f" WHERE {condition}" if condition else ""
        found = f"(SELECT struct_pack({fields}) FROM {self._from(relation.right, 'r')}{where})"
        inner = f"SELECT l.*, {found} AS found FROM {self._from(relation.left, 'l')}"
        left = ", ".join(name_of(at) for at in range(width))
        right = ", ".join(f"found.{name_of(at)} AS {name_of(width + at)}" for at in range(len(relation.right.types)))
        return f"SELECT {left}, {right} FROM ({inner})"

    # Called as a method, it would make a function at each call.
    _writer_of = staticmethod(_write.dispatcher.dispatch)


def _bit(keys: Sequence[Expression]) -> str:
    """Return the SQL of the bit of keys in a filter."""
    return f"CAST(hash({', '.join(key.text(name_of) for key in keys)}) & {FILTER_BITS - 1} AS INTEGER)"


def _condition(relation: Join) -> str:
    conditions = [_comparison(one) for one in relation.conditions]
    if relation.other is not None:
        width = len(relation.left.types)
        conditions.append(
            relation.other.text(lambda at: f"l.{name_of(at)}" if at < width else f"r.{name_of(at - width)}")
        )
    return " AND ".join(conditions)


def _comparison(condition: JoinCondition) -> str:
    return f"({condition.left.text(_of('l'))} {condition.operator} {condition.right.text(_of('r'))})"


def _of(alias: str) -> Callable[[int], str]:
    return lambda at: f"{alias}.{name_of(at)}"


def _columns(expressions: Sequence[Expression]) -> str:
    return ", ".join(f"{expression.text(name_of)} AS {name_of(at)}" for at, expression in enumerate(expressions))


def _where(conditions: Sequence[Expression], name: Callable[[int], str]) -> str:
    return f" WHERE {' AND '.join(one.text(name) for one in conditions)}" if conditions else ""


def _limit(limit: int | None, offset: int) -> str:
    return (f" LIMIT {limit}" if limit is not None else "") + (f" OFFSET {offset}" if offset else "")
