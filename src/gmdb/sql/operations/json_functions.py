"""Functions and operators of JSON and JSONB, and what other values are as JSON.

DuckDB has JSON of its own, which knows neither PostgreSQL's normal form nor its numbers: Python does all of this there.
An operator is a function with another way to be written, as in PostgreSQL: -> is jsonb_object_field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gmdb.errors import UndefinedResult
from gmdb.format.columns import ColumnType, array_of
from gmdb.format.json_text import elements_text, key_of, kind_of, members_text, normal, normal_number, quoted, string_of
from gmdb.sql import casts, json_values, numbers, zones
from gmdb.sql.operations.registry import Operation, Overload, RowFunction, Types, plain
from gmdb.sql.types import BOOLEAN, BYTEA, CHAR, INT, INTEGERS, JSON, JSONB, TEXT, is_integer, is_number, pg_name

Writer = Callable[[Any], str]
_DOCUMENTS = (JSONB, JSON)


def _both(
    name: str, python: Callable[..., Any], *more: ColumnType, gives: ColumnType | None = None, fails: bool = True
) -> dict[str, Sequence[Overload]]:
    """A function of JSON and one of JSONB, which differ by their names; without ``gives`` they give what they take."""
    return {
        f"{kind.name.lower()}_{name}": [plain((kind, *more), gives or kind, python, fails=fails and kind is JSON)]
        for kind in _DOCUMENTS
    }


def _of_jsonb(python: Callable[..., Any], *more: ColumnType, gives: ColumnType = JSONB, fails: bool = True) -> Overload:
    return plain((JSONB, *more), gives, python, fails=fails)


_PATH = array_of(TEXT)


def _of_path(python: Callable[..., Any], *more: ColumnType, kind: ColumnType = JSONB, gives: ColumnType) -> Overload:
    """A function of a document, a path, and more."""
    return plain((kind, _PATH, *more), gives, python, fails=True)


JSON_FUNCTIONS: dict[str, Sequence[Overload]] = {
    **_both("object_field", json_values.member, TEXT),
    **_both("object_field_text", json_values.member_text, TEXT, gives=TEXT),
    "json_array_element": [plain((JSON, INT), JSON, json_values.element, fails=True)],
    "jsonb_array_element": [_of_jsonb(json_values.element_or_scalar, INT, fails=False)],
    "json_array_element_text": [plain((JSON, INT), TEXT, json_values.element_text, fails=True)],
    "jsonb_array_element_text": [_of_jsonb(json_values.element_or_scalar_text, INT, gives=TEXT, fails=False)],
    **_both("typeof", kind_of, gives=TEXT, fails=False),
    **{
        f"{kind.name.lower()}_array_length": [plain((kind,), INT, json_values.array_length, fails=True)]
        for kind in _DOCUMENTS
    },
    "json_strip_nulls": [plain((JSON,), JSON, json_values.without_nulls_as_written, fails=True)],
    "jsonb_strip_nulls": [_of_jsonb(json_values.without_nulls, fails=False)],
    "jsonb_pretty": [_of_jsonb(json_values.pretty, gives=TEXT, fails=False)],
    "jsonb_contains": [_of_jsonb(json_values.contains, JSONB, gives=BOOLEAN, fails=False)],
    "jsonb_contained": [_of_jsonb(json_values.contained, JSONB, gives=BOOLEAN, fails=False)],
    "jsonb_exists": [_of_jsonb(json_values.exists, TEXT, gives=BOOLEAN, fails=False)],
    "jsonb_exists_any": [_of_path(json_values.exists_any, gives=BOOLEAN)],
    "jsonb_exists_all": [_of_path(json_values.exists_all, gives=BOOLEAN)],
    "jsonb_concat": [_of_jsonb(json_values.concatenate, JSONB, fails=False)],
    "jsonb_delete": [_of_jsonb(json_values.without_name, TEXT), _of_jsonb(json_values.without_element, INT)],
    "jsonb_delete_path": [_of_path(json_values.without_path, gives=JSONB)],
    "jsonb_set": [
        _of_path(json_values.set_at, JSONB, gives=JSONB),
        _of_path(json_values.set_at, JSONB, BOOLEAN, gives=JSONB),
    ],
    "jsonb_insert": [
        _of_path(json_values.insert_at, JSONB, gives=JSONB),
        _of_path(json_values.insert_at, JSONB, BOOLEAN, gives=JSONB),
    ],
}

# The functions that operators are, of the left side's type, and of the right one where there are two.
_OPERATORS: dict[str, Sequence[str]] = {
    "->": ("object_field", "array_element"),
    "->>": ("object_field_text", "array_element_text"),
    "#>": ("at_path",),
    "#>>": ("at_path_text",),
    "@>": ("contains",),
    "<@": ("contained",),
    "??": ("exists",),
    "??|": ("exists_any",),
    "??&": ("exists_all",),
    "#-": ("delete_path",),
    "-": ("delete",),
    "||": ("concat",),
}
_PATHS: dict[str, Sequence[Overload]] = {  # the operators #> and #>>, whose functions take as many texts as there are
    "jsonb_at_path": [_of_path(json_values.at_path, gives=JSONB)],
    "json_at_path": [_of_path(json_values.at_path, kind=JSON, gives=JSON)],
    "jsonb_at_path_text": [_of_path(json_values.text_at_path, gives=TEXT)],
    "json_at_path_text": [_of_path(json_values.text_at_path, kind=JSON, gives=TEXT)],
}


def operator_overloads(symbol: str, left: ColumnType | None, right: ColumnType | None) -> dict[str, Sequence[Overload]]:
    """The functions that an operator is beside a document, by their names; none if neither side is one."""
    kind = next((one for one in (left, right) if one in _DOCUMENTS), None)
    if kind is None or (symbol in ("-", "||") and not (left in (JSONB, None) and kind is JSONB)):
        return {}
    if symbol == "||" and right not in (JSONB, None):
        return {}
    names = [f"{kind.name.lower()}_{name}" for name in _OPERATORS[symbol]]
    return {name: known[name] for name in names for known in (JSON_FUNCTIONS, _PATHS) if name in known}


def extraction(name: str, types: Types) -> Operation | None:
    """json_extract_path and the like: of a document and any number of texts."""
    kind = JSONB if name.startswith("jsonb") else JSON
    if not types or types[0] not in (kind, None) or not all(one is None or one.name in _TEXTS for one in types[1:]):
        return None
    is_text = name.endswith("_text")
    python = json_values.extract_text if is_text else json_values.extract
    return Operation(name, (kind, *[TEXT] * (len(types) - 1)), TEXT if is_text else kind, python, fails=kind is JSON)


_TEXTS = (TEXT.name, CHAR.name)


# ---- What is equal, and comes before: jsonb_key, which comparisons and orders ask for.

KEY = Operation("jsonb_key", (JSONB,), BYTEA, key_of, fails=False)


# ---- Values as JSON.


def json_writer(type_: ColumnType) -> Writer:
    """The function that writes a value of a type, not NULL, as JSON."""
    if type_.is_array:
        return _list_writer(json_writer(type_.element), ",")
    write = casts.write_text(type_)
    if type_ in _DOCUMENTS:
        return str
    if is_integer(type_) or type_.name in ("DECIMAL", "BOOLEAN"):
        return write
    if is_number(type_):
        return lambda value: write(value) if value - value == 0 else quoted(write(value))
    if type_.name == "TIMESTAMP":
        return lambda value: quoted(write(value).replace(" ", "T", 1))
    if type_.name == "TIMESTAMPTZ":  # in UTC, whatever the session's zone
        return lambda value: quoted(zones.instant_text(value, "UTC").replace(" ", "T", 1) + ":00")
    return quoted if type_.name in _TEXTS else lambda value: quoted(write(value))


def jsonb_writer(type_: ColumnType) -> Writer:
    """The function that writes a value of a type, not NULL, as JSON in normal form."""
    if type_.is_array:
        return _list_writer(jsonb_writer(type_.element), ", ")
    write = json_writer(type_)
    if type_ == JSON:
        return normal
    if type_ == JSONB or not is_number(type_) or is_integer(type_):
        return write
    return lambda value: normal_number(text) if (text := write(value))[0] != '"' else text


def _list_writer(write: Writer, comma: str) -> Writer:
    """The function that writes an array, whose elements another one writes."""
    return lambda values: f"[{comma.join(['null' if one is None else write(one) for one in values])}]"


def _writer(name: str) -> Callable[[ColumnType], Writer]:
    return jsonb_writer if name.startswith("jsonb") or name.endswith("jsonb") else json_writer


def name_writer(type_: ColumnType) -> Writer | None:
    """The function that writes a value as the name of a member; None if none can be that."""
    if type_ in _DOCUMENTS or type_.is_array:
        return None
    write = json_writer(type_)
    return lambda value: string_of(text) if (text := write(value))[0] == '"' else text


def conversion(name: str, types: Types) -> Operation | None:
    """to_json and to_jsonb, of a value of any type."""
    if len(types) != 1:
        return None
    type_ = types[0] or TEXT
    gives = JSONB if name == "to_jsonb" else JSON
    return Operation(name, (type_,), gives, _writer(name)(type_), fails=(type_, gives) == (JSON, JSONB))


def building(name: str, types: Types) -> Operation | None:
    """json_build_object, json_build_array and the like, of any number of values of any types."""
    takes = tuple(type_ or TEXT for type_ in types)
    gives = JSONB if name.startswith("jsonb") else JSON
    writers = list(map(_writer(name), takes))
    if name.endswith("_array"):

        def array(*values: Any) -> str:
            return elements_text(_texts(writers, values))

        return Operation(name, takes, gives, array, strict=False)
    name_writers = [name_writer(type_) for type_ in takes[::2]]
    if len(takes) % 2 or None in name_writers:
        return None
    write = members_text_of if gives == JSONB else json_values.object_of

    def build(*values: Any) -> str:
        names = [member_name(writer, value) for writer, value in zip(name_writers, values[::2], strict=True)]
        return write(names, _texts(writers[1::2], values[1::2]))

    return Operation(name, takes, gives, build, strict=False)


def _texts(writers: Sequence[Writer], values: Sequence[Any]) -> list[str]:
    return ["null" if value is None else write(value) for write, value in zip(writers, values, strict=True)]


def member_name(writer: Writer | None, value: Any) -> str:
    if value is None:
        raise UndefinedResult("a member of a JSON object needs a name: it is null")
    assert writer is not None
    return writer(value)


def members_text_of(names: Sequence[str], values: Sequence[str]) -> str:
    return members_text(dict(zip(names, values, strict=True)))


def variadic(name: str, types: Types) -> Operation | None:
    """A function of any number of arguments, or of any types."""
    if name.startswith("to_"):
        return conversion(name, types)
    return extraction(name, types) if "_extract_" in name else building(name, types)


def row_of(names: Sequence[str], types: Sequence[ColumnType]) -> Operation:
    """row_to_json, of columns with names."""
    writers = list(map(json_writer, types))

    def build(*values: Any) -> str:
        return json_values.row_text(names, _texts(writers, values))

    return Operation(f"row_to_json{tuple(names)}", tuple(types), JSON, build, strict=False)


def member_naming(type_: ColumnType) -> Operation | None:
    """What json_object_agg has for the name of a member: the quoted name."""
    writer = name_writer(type_)
    if writer is None:
        return None
    return Operation("json_member_name", (type_,), TEXT, lambda value: quoted(member_name(writer, value)), strict=False)


# ---- casts


def cast_of(source: ColumnType, target: ColumnType) -> tuple[Callable[[Any], Any], bool] | None:
    """The function of a cast from or to a document that is no cast of texts, and whether it can fail."""
    if (source, target) == (JSONB, JSON):
        return str, False
    if (source, target) == (JSON, JSONB):
        return normal, True
    if source != JSONB:
        return None
    if target == BOOLEAN:
        return json_values.to_boolean, True
    if is_integer(target):
        return partial(_integer, type_=target), True
    if target.name == "DECIMAL":
        fit = numbers.fit_to(target)
        return lambda value: fit(json_values.to_number(value, "numeric")), True
    if is_number(target):
        return partial(_float, type_=target), True
    return None


def _integer(value: str, type_: ColumnType) -> int:
    low, high = INTEGERS[type_.name]
    number = json_values.to_integer(value, low, high, type_.name.lower())
    return number if number is not None else numbers.out_of_range(type_.name)


def _float(value: str, type_: ColumnType) -> float:
    json_values.to_number(value, pg_name(type_))
    number: float = casts.read_text(type_)(value)
    return number


# ---- functions in FROM


def _rows(
    name: str, python: Callable[..., Any], gives: Sequence[ColumnType], names: Sequence[str]
) -> dict[str, RowFunction]:
    """A function of JSON and one of JSONB; JSONB among ``gives`` stands for what it is called with."""
    return {
        (full := f"{kind.name.lower()}_{name}"): RowFunction(
            full, (kind,), tuple(kind if one == JSONB else one for one in gives), python, tuple(names)
        )
        for kind in _DOCUMENTS
    }


ROW_FUNCTIONS: dict[str, RowFunction] = {
    **_rows("array_elements", json_values.array_elements, (JSONB,), ("value",)),
    **_rows("array_elements_text", json_values.array_elements_text, (TEXT,), ("value",)),
    **_rows("each", json_values.each, (TEXT, JSONB), ("key", "value")),
    **_rows("each_text", json_values.each_text, (TEXT, TEXT), ("key", "value")),
    **_rows("object_keys", json_values.names, (TEXT,), ()),
}
