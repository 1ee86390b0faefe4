"""Expressions of a bound plan as DuckDB SQL with holes for the columns of their input.

DuckDB serialises the expressions of a bound plan as JSON (`json_serialize_plan`). All casts are explicit in it and all
functions are resolved, so an expression means the same in any text around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

Json = Mapping[str, Any]


class NotCoveredError(Exception):
    """A part of the plan that cannot run in stages; the message names it for users."""


class Expression(NamedTuple):
    """SQL text of type `type` in pieces: a string is text, a number the position of a column of the input."""

    parts: tuple[str | int, ...]
    type: str

    @property
    def columns(self) -> frozenset[int]:
        """The positions that the expression reads."""
        return frozenset(part for part in self.parts if isinstance(part, int))

    @property
    def column(self) -> int | None:
        """The position, if the expression is one column and nothing else."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], int) else None

    def text(self, name: Callable[[int], str]) -> str:
        """Return the SQL text, with `name` as the name of each column."""
        return "".join(name(part) if isinstance(part, int) else part for part in self.parts)

    def over(self, position: Callable[[int], int]) -> Expression:
        """Return the expression with other positions."""
        return Expression(tuple(position(part) if isinstance(part, int) else part for part in self.parts), self.type)


def column(position: int, of: str) -> Expression:
    """Return the expression that is one column of type `of`."""
    return Expression((position,), of)


def joined(template: str, *expressions: Expression, type: str) -> Expression:
    """Return the text of `template` with an expression for each `{}`."""
    texts = template.split("{}")
    parts: list[str | int] = [texts[0]]
    for expression, text in zip(expressions, texts[1:], strict=True):
        parts += expression.parts
        parts.append(text)
    return Expression(tuple(_merged(parts)), type)


def _merged(parts: Sequence[str | int]) -> Iterator[str | int]:
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
        else:
            if text:
                yield text
            text = ""
            yield part
    if text:
        yield text


def listed(expressions: Sequence[Expression], between: str = ", ", *, type: str = "") -> Expression:
    """Return the expressions with a text between them."""
    return joined(between.join(["{}"] * len(expressions)), *expressions, type=type)


def identifier(name: str) -> str:
    """Return a name in quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a string in quotes."""
    return "'" + text.replace("'", "''") + "'"


def literal_list(texts: Iterable[str]) -> str:
    """Return a list of strings as one constant: to bind a list of 1,000 constants takes DuckDB 5 ms."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    inside = ", ".join(f'"{text}"' for text in quoted)
    return f"CAST({literal(f'[{inside}]')} AS VARCHAR[])"


# ------------------------------------------------------------------------------------------------------------- types


def type_text(value: Json) -> str:
    """Return a type as SQL writes it."""
    name = value["id"]
    info = value.get("type_info") or {}
    if name == "DECIMAL":
        return f"DECIMAL({info['width']},{info['scale']})"
    if name == "LIST":
        return f"{type_text(info['child_type'])}[]"
    if name == "ARRAY":
        return f"{type_text(info['child_type'])}[{info['size']}]"
    if name == "STRUCT":
        fields = (f"{identifier(child['first'])} {type_text(child['second'])}" for child in info["child_types"])
        return f"STRUCT({', '.join(fields)})"
    if name == "MAP":
        key, item = (child["second"] for child in info["child_type"]["type_info"]["child_types"])
        return f"MAP({type_text(key)}, {type_text(item)})"
    if name == "ENUM":
        return f"ENUM({', '.join(map(literal, info['values']))})"
    if name in _PLAIN_TYPES and not info.get("collation"):
        return _PLAIN_TYPES[name]
    raise NotCoveredError(f"the type {name.lower()}")


_PLAIN_TYPES: Final = {
    name: name
    for names in (
        ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        ("UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "VARCHAR", "BLOB", "UUID", "BIT", "INTERVAL"),
        ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
    )
    for name in names
} | {
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP WITH TIME ZONE",
    "TIME WITH TIME ZONE": "TIME WITH TIME ZONE",
    "NULL": '"NULL"',
}


# --------------------------------------------------------------------------------------------------------- constants


def constant(value: Json) -> Expression:
    """Return a constant of the plan."""
    of = type_text(value["type"])
    if value.get("is_null"):
        return Expression(("NULL",) if of == '"NULL"' else (f"CAST(NULL AS {of})",), of)
    return Expression((_constant_text(of, value["value"], value["type"]),), of)


def _constant_text(of: str, value: Any, declared: Json) -> str:
    name = declared["id"]
    if name == "BOOLEAN":
        return "TRUE" if value else "FALSE"
    if name == "VARCHAR":
        return literal(value)
    if name == "BLOB":
        return f"CAST({literal(value)} AS BLOB)"  # bytes that are no ASCII letters stand as \\x00
    if name == "ENUM":
        return f"CAST({literal(declared['type_info']['values'][value])} AS {of})"
    if name in _INTEGERS:
        return f"CAST({literal(str(value))} AS {of})"
    if name in ("HUGEINT", "UHUGEINT"):
        return f"CAST({literal(str((value['upper'] << 64) + value['lower']))} AS {of})"
    if name in ("FLOAT", "DOUBLE"):
        return f"CAST({literal(_number(value))} AS {of})"
    if name == "DECIMAL":
        return f"CAST({literal(_decimal(value, declared['type_info']['scale']))} AS {of})"
    if name in _MOMENTS:
        return f"CAST({literal(_MOMENTS[name](value))} AS {of})"
    if name == "INTERVAL":
        return f"(to_months({value['months']}) + to_days({value['days']}) + to_microseconds({value['micros']}))"
    if name == "MAP":
        entries = ", ".join(constant(entry).text(str) for entry in value["children"])
        return f"CAST(map_from_entries([{entries}]) AS {of})"
    if name in ("LIST", "ARRAY"):
        children = ", ".join(constant(child).text(str) for child in value["children"])
        return f"CAST([{children}] AS {of})"
    if name == "STRUCT":
        names = [identifier(child["first"]) for child in declared["type_info"]["child_types"]]
        values = [constant(child).text(str) for child in value["children"]]
        return f"struct_pack({', '.join(f'{n} := {v}' for n, v in zip(names, values, strict=True))})"
    if name == "UUID":
        return f"CAST({literal(str(UUID(int=((value['upper'] + (1 << 63)) << 64) + value['lower'])))} AS UUID)"
    raise NotCoveredError(f"a constant of the type {name.lower()}")


_INTEGERS: Final = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
)


def _number(value: float | str) -> str:
    return str(value)  # nan, inf and -inf included


def _decimal(value: Any, scale: int) -> str:
    unscaled = (value["upper"] << 64) + value["lower"] if isinstance(value, Mapping) else int(value)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else f"{sign}{digits}"


def _date(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        raise NotCoveredError("a date outside of the years 1 to 9999") from None


def _timestamp(micros: int) -> str:
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=micros)).isoformat(sep=" ")  # noqa: DTZ001 - no zone is meant
    except OverflowError:
        raise NotCoveredError("a timestamp outside of the years 1 to 9999") from None


def _time(micros: int) -> str:
    return (datetime(1970, 1, 1) + timedelta(microseconds=micros)).time().isoformat()  # noqa: DTZ001


_MOMENTS: Final[Mapping[str, Callable[[int], str]]] = {
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_S": lambda seconds: _timestamp(seconds * 1_000_000),
    "TIMESTAMP_MS": lambda millis: _timestamp(millis * 1_000),
    "TIMESTAMP_NS": lambda nanos: f"{_timestamp(nanos // 1_000)[:19]}.{nanos % 1_000_000_000:09}",
    "TIMESTAMP WITH TIME ZONE": lambda micros: _timestamp(micros) + "+00",
    "TIME": _time,
}


# ------------------------------------------------------------------------------------------------------- expressions


COMPARISONS: Final = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}
SAME_IN_ANY_TASK: Final = frozenset(
    {"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "currval", "setseed"}
)
"""Functions whose answers would depend on the task that calls them."""
_WITH_LAMBDA: Final = frozenset(
    f"{of}{name}" for of in ("", "array_", "list_") for name in ("apply", "filter", "reduce", "transform")
)
"""Functions whose lambda is in the plan as a part of the function that SQL cannot write."""
_BINARY: Final = frozenset(
    {"+", "-", "*", "/", "//", "%", "**", "^", "||", "&", "|", "<<", ">>", "@>", "<@", "&&", "^@"}
)
_LIKE: Final = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE", "~~~": "GLOB"}
_TESTS: Final = {
    "OPERATOR_IS_NULL": "({} IS NULL)",
    "OPERATOR_IS_NOT_NULL": "({} IS NOT NULL)",
    "OPERATOR_NOT": "(NOT {})",
}
BOOLEAN: Final = "BOOLEAN"


def read_expression(node: Json) -> Expression:
    """Return an expression of the plan; NotCoveredError for one that stages cannot run."""
    reader = _READERS.get(node["expression_class"])
    if reader is None:
        raise NotCoveredError(f"the expression {node['type'].lower().replace('_', ' ')}")
    return reader(node)


def read_all(nodes: Sequence[Json]) -> list[Expression]:
    """Return several expressions of the plan."""
    return [read_expression(node) for node in nodes]


def _comparison(node: Json) -> Expression:
    sides = read_expression(node["left"]), read_expression(node["right"])
    return joined(f"({{}} {COMPARISONS[node['type']]} {{}})", *sides, type=BOOLEAN)


def _conjunction(node: Json) -> Expression:
    word = " AND " if node["type"] == "CONJUNCTION_AND" else " OR "
    return joined("({})", listed(read_all(node["children"]), word), type=BOOLEAN)


def _between(node: Json) -> Expression:
    value, lower, upper = (read_expression(node[name]) for name in ("input", "lower", "upper"))
    first = ">=" if node["lower_inclusive"] else ">"
    last = "<=" if node["upper_inclusive"] else "<"
    return joined(f"({{}} {first} {{}} AND {{}} {last} {{}})", value, lower, value, upper, type=BOOLEAN)


def _cast(node: Json) -> Expression:
    of = type_text(node["return_type"])
    word = "TRY_CAST" if node.get("try_cast") else "CAST"
    return joined(f"{word}({{}} AS {of})", read_expression(node["child"]), type=of)


def _case(node: Json) -> Expression:
    of = type_text(node["return_type"])
    template, inner = "(CASE", []
    for check in node["case_checks"]:
        template += " WHEN {} THEN {}"
        inner += [read_expression(check["when_expr"]), read_expression(check["then_expr"])]
    return joined(f"{template} ELSE {{}} END)", *inner, read_expression(node["else_expr"]), type=of)


def _operator(node: Json) -> Expression:
    kind, inner = node["type"], read_all(node["children"])
    of = type_text(node["return_type"])
    if kind in _TESTS:
        return joined(_TESTS[kind], *inner, type=of)
    if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        word = "IN" if kind == "COMPARE_IN" else "NOT IN"
        return joined(f"({{}} {word} ({{}}))", inner[0], listed(inner[1:]), type=of)
    if kind in ("OPERATOR_COALESCE", "OPERATOR_NULLIF", "OPERATOR_TRY"):
        return joined(f"{kind.removeprefix('OPERATOR_')}({{}})", listed(inner), type=of)
    raise NotCoveredError(f"the operator {kind.lower().replace('_', ' ')}")


def _function(node: Json) -> Expression:
    name, inner = node["name"], read_all(node["children"])
    of = type_text(node["return_type"])
    if name in SAME_IN_ANY_TASK:
        raise NotCoveredError(f"the function {name}, whose values depend on the order of rows")
    if name in _WITH_LAMBDA:
        raise NotCoveredError(f"the function {name} with its lambda")
    if name.startswith("__internal"):
        raise NotCoveredError(f"the function {name}")
    if of.startswith("DECIMAL("):  # the arguments are cast to wide types already: bound again, they give a wider one
        return joined(f"CAST({{}} AS {of})", _call(node, name, inner, of), type=of)
    return _call(node, name, inner, of)


def _call(node: Json, name: str, inner: Sequence[Expression], of: str) -> Expression:
    if name in _LIKE and len(inner) == 2:
        return joined(f"({{}} {_LIKE[name]} {{}})", *inner, type=of)
    if name in _BINARY and len(inner) == 2:
        return joined(f"({{}} {name} {{}})", *inner, type=of)
    if name in ("-", "+") and len(inner) == 1:
        return joined(f"({name}{{}})", *inner, type=of)
    if name in ("array_slice", "list_slice"):
        whole, *bounds = inner
        # The plan has an empty list for a bound that the text leaves out, and binds none that is written so.
        left_out = [bound.type.endswith("[]") for bound in bounds]
        if left_out[1] and len(bounds) == 3:
            parts = ["" if left_out[0] else "{}", "-", "{}"]
        else:
            parts = ["" if out else "{}" for out in left_out]
        given = (bound for bound, out in zip(bounds, left_out, strict=True) if not out)
        return joined(f"({{}})[{':'.join(parts)}]", whole, *given, type=of)
    if name == "struct_pack":
        fields = node["return_type"]["type_info"]["child_types"]
        named = [
            joined(f"{identifier(f['first'])} := {{}}", e, type=e.type) for f, e in zip(fields, inner, strict=True)
        ]
        return joined("struct_pack({})", listed(named), type=of)
    return joined(f"{identifier(name)}({{}})", listed(inner), type=of)


_READERS: Final[Mapping[str, Callable[[Json], Expression]]] = {
    "BOUND_REF": lambda node: column(node["index"], type_text(node["return_type"])),
    "BOUND_CONSTANT": lambda node: constant(node["value"]),
    "BOUND_COMPARISON": _comparison,
    "BOUND_CONJUNCTION": _conjunction,
    "BOUND_BETWEEN": _between,
    "BOUND_CAST": _cast,
    "BOUND_CASE": _case,
    "BOUND_OPERATOR": _operator,
    "BOUND_FUNCTION": _function,
}


# -------------------------------------------------------------------------------------------- orders and aggregates


class Order(NamedTuple):
    """One key of an order."""

    by: Expression
    descending: bool
    nulls_first: bool

    def over(self, position: Callable[[int], int]) -> Order:
        """Return the key with other positions."""
        return self._replace(by=self.by.over(position))

    @property
    def direction(self) -> str:
        """The direction and the place of NULL, as `ORDER BY` writes them."""
        return f"{'DESC' if self.descending else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"

    @property
    def expression(self) -> Expression:
        """The key as `ORDER BY` writes it."""
        return joined(f"{{}} {self.direction}", self.by, type="")


def read_orders(nodes: Sequence[Json]) -> list[Order]:
    """Return the keys of an order; constants order nothing, and SQL refuses them."""
    orders = [
        Order(read_expression(node["expression"]), node["type"] == "DESCENDING", node["null_order"] == "NULLS FIRST")
        for node in nodes
    ]
    return [order for order in orders if order.by.columns]


class Aggregate(NamedTuple):
    """A call of an aggregate function; `filter` selects its rows."""

    name: str
    arguments: tuple[Expression, ...]
    type: str
    distinct: bool = False
    filter: Expression | None = None
    orders: tuple[Order, ...] = ()

    @property
    def expression(self) -> Expression:
        """The call as SQL."""
        inside = (
            listed(self.arguments) if self.arguments else Expression(("*",) if self.name == "count_star" else (), "")
        )
        name = "count" if self.name == "count_star" else self.name
        template, more = f"{identifier(name)}({'DISTINCT ' if self.distinct else ''}{{}}", [inside]
        if self.orders:
            template += " ORDER BY {}"
            more.append(listed([order.expression for order in self.orders]))
        template += ")"
        if self.filter is not None:
            template += " FILTER (WHERE {})"
            more.append(self.filter)
        return joined(template, *more, type=self.type)


AGGREGATES: Final = frozenset({
    "sum", "count", "count_star", "min", "max", "avg", "first", "any_value", "last", "bool_and", "bool_or", "bit_and",
    "bit_or", "bit_xor", "product", "stddev_samp", "stddev_pop", "var_samp", "var_pop", "stddev", "variance", "corr",
    "covar_samp", "covar_pop", "regr_slope", "regr_intercept", "regr_count", "regr_r2", "regr_avgx", "regr_avgy",
    "regr_sxx", "regr_syy", "regr_sxy", "skewness", "kurtosis", "kurtosis_pop", "entropy", "mode", "arg_min",
    "arg_max", "arg_min_null", "arg_max_null", "approx_count_distinct", "array_agg", "list", "fsum", "favg", "mad",
    "string_agg", "histogram",
})  # fmt: skip
"""The aggregate functions without parameters of their own in the plan."""


def read_aggregate(node: Json) -> Aggregate:
    """Return an aggregate of the plan."""
    name = _SPELLED.get(node["name"], node["name"])
    if name not in AGGREGATES and name not in QUANTILES:
        raise NotCoveredError(f"the aggregate function {name}")
    bys = node.get("order_bys")
    arguments = read_all(node["children"])
    orders = tuple(read_orders(bys["orders"])) if bys else ()
    if name == "string_agg":
        arguments.append(Expression((literal(node["function_data"]["separator"]),), "VARCHAR"))
    if name in QUANTILES:
        if node["function_data"].get("desc"):
            orders = (Order(arguments[0], descending=True, nulls_first=False),)
        if name != "median":
            arguments.append(_quantiles(node, arguments[0].type))
    return Aggregate(
        name,
        tuple(arguments),
        type_text(node["return_type"]),
        node["aggregate_type"] == "DISTINCT",
        read_expression(node["filter"]) if node.get("filter") else None,
        orders,
    )


QUANTILES: Final = frozenset({"median", "quantile_cont", "quantile_disc", "approx_quantile"})
"""The aggregate functions that have their fractions in the plan."""


def _quantiles(node: Json, of: str) -> Expression:
    """Return the second argument of a quantile of values of a type: a fraction, or a list of them."""
    values = node["function_data"]["quantiles"]
    each = [constant(one) if isinstance(one, Mapping) else Expression((str(one),), "FLOAT") for one in values]
    if node["return_type"]["id"] == "LIST" and type_text(node["return_type"]) != of:  # the quantile of lists is a list
        return joined("[{}]", listed(each), type=f"{each[0].type}[]")
    return each[0]


_SPELLED: Final = {"sum_no_overflow": "sum"}
"""Names that only the optimiser may use."""
