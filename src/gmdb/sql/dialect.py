"""PostgreSQL's dialect as gmdb reads it: sqlglot's, with what that loses of a text.

sqlglot's tree has no place for some nodes and no order for ``?``; here every parameter has its number (from 0, in
the order of the text) and its place.  Three of sqlglot's rules lose something and are replaced: the text of an
interval is kept whole, ``date_part`` is not taken for ``extract``, whose type differs, and in
``date '2024-01-01'::text`` the cast is that of the date.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from gmdb.errors import Error, InvalidSyntax
from gmdb.process.late_patterns import late_pattern
from gmdb.sql.merge_clauses import read_clauses, written_clause
from gmdb.sql.strictness import (
    SET_TOKENS,
    require_finished,
    require_nothing_lost,
    require_order,
    require_whole,
    unexpected,
)

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # errors of ours report what it cannot parse
_INTERNALS = late_pattern(r" but got <Token.*>| for <class .*>|^Required keyword: ")  # of sqlglot's messages
_SYNTAXES = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")  # of calls with words between arguments
NUMBER = "gmdb_number"  # of a ``?`` or ``$1``, from 0, in node.meta
INSTANT = "gmdb_instant"  # in the meta of a literal that has been read as an instant: a text that says its zone
IS_DOLLAR = "gmdb_dollar"  # in the meta of a parameter that was written as ``$1``
PARAMETER_MAX = 65_535  # the highest number of a ``$1``
OVERRIDING = "gmdb_overriding"  # in the meta of an INSERT's table, while it is parsed
UNKNOWN = "unknown"  # in the meta of a Null that was written so


class AlterExpression(exp.Expression):
    """ALTER COLUMN … DROP EXPRESSION, or SET EXPRESSION AS (…), which sqlglot does not know."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": False, "exists": False}


def _alter_expression_sql(generator: Any, node: AlterExpression) -> str:
    column, expression = generator.sql(node, "this"), node.args.get("expression")
    if expression is not None:
        return f"ALTER COLUMN {column} SET EXPRESSION AS ({generator.sql(expression)})"
    return f"ALTER COLUMN {column} DROP EXPRESSION{' IF EXISTS' if node.args.get('exists') else ''}"


class Symbol(exp.Expression, exp.Binary):
    """An operator that PostgreSQL has under no name: all of these bind alike, tighter than comparisons."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True, "symbol": True}


_EXISTS = TokenType.DCOLONQMARK  # what stands for ``??``, as no dialect of PostgreSQL's has it
_SYMBOLS = {
    **{TokenType.ARROW: "->", TokenType.DARROW: "->>", TokenType.HASH_ARROW: "#>", TokenType.DHASH_ARROW: "#>>"},
    **{TokenType.HASH_DASH: "#-", TokenType.AT_GT: "@>", TokenType.LT_AT: "<@", TokenType.DAMP: "&&"},
    **{_EXISTS: "??", TokenType.QMARK_PIPE: "??|", TokenType.QMARK_AMP: "??&"},
}


def _operator(symbol: str) -> Any:
    return lambda self, left, right: self.expression(Symbol(this=left, expression=right, symbol=symbol))


class GmdbSql(Postgres):
    """The dialect of gmdb's statements."""

    INDEX_OFFSET = 0  # subscripts stay what they are

    class Tokenizer(Postgres.Tokenizer):
        """A tokenizer that distinguishes large objects from bytes and texts within rows."""

        # A question mark is a parameter, whatever follows it, but for a second one: as drivers have it, ?? is
        # PostgreSQL's operator ?, and ??| and ??& are its ?| and ?&.
        KEYWORDS: ClassVar[dict[str, Any]] = {
            **{word: kind for word, kind in Postgres.Tokenizer.KEYWORDS.items() if "?" not in word},
            "??": _EXISTS,
            "??|": TokenType.QMARK_PIPE,
            "??&": TokenType.QMARK_AMP,
            "BLOB": TokenType.BLOB,
            "CLOB": TokenType.LONGTEXT,
        }

    class Parser(Postgres.Parser):  # type: ignore[misc, valid-type]
        """A parser that keeps places, the order of parameters and the text of intervals."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}  # the binder decides what a call means
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: Postgres.Parser.FUNCTION_PARSERS[name] for name in _SYNTAXES
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: Postgres.Parser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("ANY", "CASE")
        }

        LAMBDAS: ClassVar[dict[Any, Any]] = {TokenType.FARROW: Postgres.Parser.LAMBDAS[TokenType.FARROW]}
        RANGE_PARSERS: ClassVar[dict[Any, Any]] = {
            kind: parser for kind, parser in Postgres.Parser.RANGE_PARSERS.items() if kind not in _SYMBOLS
        }
        JSON_OPERATORS: ClassVar[dict[Any, Any]] = {
            TokenType.PLACEHOLDER: lambda self, *_: self.raise_error("the operator ? is written ??, or jsonb_exists()"),
            **{kind: _operator(symbol) for kind, symbol in _SYMBOLS.items()},
        }

        ADD_CONSTRAINT_KEYWORDS: ClassVar[set[str]] = {"CHECK"}
        KEY_CONSTRAINT_OPTIONS: ClassVar[dict[str, Any]] = {
            **Postgres.Parser.KEY_CONSTRAINT_OPTIONS,
            "NOT": ("DEFERRABLE", "ENFORCED"),
        }

        def _parse_alter_table_alter(self) -> Any:
            start = self._index
            self._match(TokenType.COLUMN)
            column = self._parse_field(any_token=True)
            if self._match_text_seq("DROP", "EXPRESSION"):
                return self.expression(AlterExpression(this=column, exists=self._parse_exists()))
            if self._match_text_seq("SET", "EXPRESSION"):
                if not self._match(TokenType.ALIAS) or not self._match(TokenType.L_PAREN):
                    self.raise_error("SET EXPRESSION AS (...)")
                expression = self._parse_disjunction()
                self._match_r_paren()
                return self.expression(AlterExpression(this=column, expression=expression))
            self._retreat(start)
            return super()._parse_alter_table_alter()

        def _parse_unique(self) -> Any:
            nulls = self._parse_nulls_distinct()
            node = super()._parse_unique()
            node.set("nulls", nulls)
            return node

        def _parse_index_params(self) -> Any:
            node = super()._parse_index_params()
            nulls = self._parse_nulls_distinct()
            if nulls is not None:
                node.set("nulls", nulls)
                node.set("where", node.args.get("where") or self._parse_where())
            return node

        def _parse_nulls_distinct(self) -> str | None:
            if self._match_text_seq("NULLS", "NOT", "DISTINCT"):
                return "NOT DISTINCT"
            return "DISTINCT" if self._match_text_seq("NULLS", "DISTINCT") else None

        def _parse_key_constraint_options(self) -> list[str]:
            """Also the columns of ``on delete set null (a, b)``."""
            options: list[str] = []
            while more := super()._parse_key_constraint_options():
                options += more
                if not more[-1].endswith((" SET NULL", " SET DEFAULT")) or not self._match(TokenType.L_PAREN):
                    break
                names = self._parse_csv(self._parse_id_var)
                self._match_r_paren()
                options[-1] += f" ({', '.join(name.sql(dialect=GmdbSql) for name in names)})"
            return options

        def _parse_generated_as_identity(self) -> Any:
            """The options of an identity, in any order, are a text: that of a sequence's (statements/sequences.py)."""
            start = self._index
            by_default = self._match_text_seq("BY", "DEFAULT")
            if by_default or self._match_text_seq("ALWAYS"):
                self._match(TokenType.ALIAS)
                if self._match_text_seq("IDENTITY") and self._match(TokenType.L_PAREN, advance=False):
                    words, first = ["IDENTITY"], self._curr
                    self._advance()
                    while self._curr is not None and self._curr.token_type != TokenType.R_PAREN:
                        words.append(self._curr.text)
                        self._advance()
                    options = exp.Var(this=" ".join(words)).update_positions(first)
                    self._match_r_paren()
                    kind = exp.GeneratedAsIdentityColumnConstraint
                    return self.expression(kind(this=not by_default, expression=options))
            self._retreat(start)
            node = super()._parse_generated_as_identity()
            if by_default and isinstance(node, exp.ComputedColumnConstraint):
                self.raise_error("a generated column is GENERATED ALWAYS")
            self._match_text_seq("VIRTUAL")  # whoever reads the tree refuses what is not stored
            return node

        def _parse_placeholder(self) -> Any:
            token, before = self._curr, self._index
            if token is not None and token.token_type == TokenType.MOD:  # as a sign it stands between two values
                self.raise_error("a parameter is written as ?, $1 or :name; % is the remainder of a division", token)
            node = super()._parse_placeholder()
            if isinstance(node, exp.Placeholder) and token is not None:
                node.update_positions(token)
                if token.token_type == TokenType.PLACEHOLDER:
                    node.meta[NUMBER] = self._numbers()[before]
            return node

        def _parse_parameter(self) -> Any:
            token, node = self._prev, super()._parse_parameter()
            text = node.this.name if isinstance(node.this, exp.Literal) else ""
            if not text.isdecimal() or len(text) > len(str(PARAMETER_MAX)) or not 1 <= int(text) <= PARAMETER_MAX:
                self.raise_error(f"a parameter's number is one from 1 to {PARAMETER_MAX}", token)
            parameter = exp.Placeholder().update_positions(token)
            parameter.meta.update({NUMBER: int(text) - 1, IS_DOLLAR: True})
            return parameter

        def _parse_insert_table(self) -> Any:
            node, words = super()._parse_insert_table(), self._parse_overriding()
            if node is not None and words is not None:
                node.meta[OVERRIDING] = words
            return node

        def _parse_overriding(self) -> str | None:
            if not self._match_text_seq("OVERRIDING"):
                return None
            for word in ("SYSTEM", "USER"):
                if self._match_text_seq(word, "VALUE"):
                    return f"OVERRIDING {word} VALUE"
            self.raise_error("OVERRIDING takes SYSTEM VALUE or USER VALUE")
            return None

        def _parse_when_matched(self) -> exp.Whens:
            return read_clauses(self)

        def _parse_insert(self) -> Any:
            """Also OVERRIDING, for which ``settings`` are the place: the tree has another dialect's clause there."""
            node = super()._parse_insert()
            words = node.this.meta.pop(OVERRIDING, None) if isinstance(node, exp.Insert) else None
            if words is not None:
                node.set("settings", exp.var(words))
            return node

        def _numbers(self) -> dict[int, int]:
            """The numbers of the question marks, by where they stand among the tokens."""
            numbered = getattr(self, "_numbered", None)
            if numbered is None or numbered[0] is not self._tokens:
                places = (at for at, t in enumerate(self._tokens) if t.token_type == TokenType.PLACEHOLDER)
                numbered = self._numbered = (self._tokens, {at: number for number, at in enumerate(places)})
            by_place: dict[int, int] = numbered[1]
            return by_place

        def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
            start = self._index
            if self._match(TokenType.INTERVAL) and self._match(TokenType.STRING):
                text = exp.Literal.string(self._prev.text).update_positions(self._prev)
                unit = self._parse_var(any_token=True, upper=True) if self._at_unit() else None
                return self.expression(exp.Interval(this=text, unit=unit))
            self._retreat(start)
            return super()._parse_interval(require_interval, parse_function_unit)

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
            kind = self._curr.token_type if self._curr is not None else TokenType.INTERVAL
            is_type = kind in self.TYPE_TOKENS and kind != TokenType.INTERVAL
            if is_type and self._next is not None and self._next.token_type == TokenType.NUMBER:
                self.raise_error("a literal behind a type is quoted", self._next)
            if is_type and self._next is not None and self._next.token_type == TokenType.STRING:
                start = self._index
                type_ = self._parse_types(check_func=True, allow_identifiers=False)
                if isinstance(type_, exp.DataType) and self._match(TokenType.STRING):
                    text = exp.Literal.string(self._prev.text).update_positions(self._prev)
                    return self._parse_column_ops(self.expression(exp.Cast(this=text, to=type_)))
                self._retreat(start)
            return super()._parse_type(parse_interval, fallback_to_identifier)

        def _parse_bracket(self, this: Any = None) -> Any:
            if this is None and self._curr is not None and self._curr.token_type == TokenType.L_BRACKET:
                self.raise_error("an array is written as ARRAY[...], and has one dimension", self._curr)
            return super()._parse_bracket(this)

        def _parse_null(self) -> Any:
            is_unknown = self._curr is not None and self._curr.token_type == TokenType.UNKNOWN
            node = super()._parse_null()
            if is_unknown and isinstance(node, exp.Null):
                node.meta[UNKNOWN] = True
            return node

        def _parse_type_size(self) -> Any:
            if self._curr is not None and self._curr.token_type == TokenType.STRING:
                self.raise_error("the length of a type is a number")
            return super()._parse_type_size()

        def _parse_table(self, *args: Any, **options: Any) -> Any:
            node = super()._parse_table(*args, **options)
            if isinstance(node, exp.Table) and node.args.get("indexed") is False:
                self.raise_error("NOT INDEXED means nothing here", self._prev)
            return node

        def _parse_join(self, *args: Any, **options: Any) -> Any:
            is_comma = self._curr is not None and self._curr.token_type == TokenType.COMMA
            node = super()._parse_join(*args, **options)
            if isinstance(node, exp.Join) and not is_comma and not node.args.get("on") and not node.args.get("using"):
                is_cross = str(node.args.get("kind") or "").upper() == "CROSS"
                if not is_cross and not node.args.get("method") and not isinstance(node.this, exp.Lateral):
                    self.raise_error("JOIN needs ON or USING")
            return node

        def _parse_limit(self, this: Any = None, top: bool = False, skip_limit_token: bool = False) -> Any:
            node = super()._parse_limit(this, top, skip_limit_token)
            is_all = isinstance(node, exp.Limit) and isinstance(node.expression, exp.Var)
            return this if is_all and node.expression.name.upper() == "ALL" else node

        def _at_unit(self) -> bool:
            word = self._curr.text.upper() if self._curr is not None else ""
            return word in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")

    class Generator(Postgres.Generator):  # type: ignore[misc, valid-type]
        """A generator that writes parameters and MERGE as they were written, and what sqlglot does not know."""

        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **{kind: written for kind, written in Postgres.Generator.TRANSFORMS.items() if kind is not exp.Merge},
            AlterExpression: _alter_expression_sql,
            Symbol: lambda self, node: self.binary(node, node.args["symbol"]),
        }

        def when_sql(self, expression: exp.When) -> str:
            return written_clause(self, expression)

        def placeholder_sql(self, expression: exp.Placeholder) -> str:
            if expression.meta.get(IS_DOLLAR):
                return f"${expression.meta[NUMBER] + 1}"
            text: str = super().placeholder_sql(expression)
            return text

        def uniquecolumnconstraint_sql(self, expression: Any) -> str:
            nulls = expression.args.get("nulls")
            plain = expression.copy()
            plain.set("nulls", None)
            text = str(super().uniquecolumnconstraint_sql(plain))
            return text.replace("UNIQUE", f"UNIQUE NULLS {nulls}", 1) if nulls else text

        def indexparameters_sql(self, expression: Any) -> str:
            nulls = expression.args.get("nulls")
            return str(super().indexparameters_sql(expression)) + (f" NULLS {nulls}" if nulls else "")


# What stands before TABLE where it is a query: nothing, and these, and the name of an INSERT's table.
_BEFORE_QUERY = frozenset(
    {
        *SET_TOKENS,
        *(TokenType.SEMICOLON, TokenType.L_PAREN, TokenType.R_PAREN, TokenType.ALL, TokenType.DISTINCT),
        *(TokenType.ALIAS,),
    }
)


# What follows TABLE t: nothing, the end of a query in a statement, or what follows set operations as well.
_BEHIND_TABLE = frozenset(
    {
        *SET_TOKENS,
        *(TokenType.SEMICOLON, TokenType.R_PAREN, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET),
        *(TokenType.FETCH, TokenType.FOR, TokenType.ON, TokenType.RETURNING, TokenType.WITH),
    }
)


def _require_table_alone(tokens: Sequence[Any], at: int) -> None:
    """Refuse what cannot stand behind ``TABLE name``, though it could behind ``FROM name``, which is at ``at``."""
    if at < len(tokens) and tokens[at].text.lower() == "only":
        at += 1
    at += 1
    while at < len(tokens) and tokens[at].token_type == TokenType.DOT:
        at += 2
    if at < len(tokens) and tokens[at].token_type not in _BEHIND_TABLE:
        raise unexpected(tokens[at])


def _with_tables_written_out(tokens: list[Any]) -> list[Any]:
    """Tokens in which ``TABLE t`` is ``SELECT * FROM t``, which it means."""
    if not any(token.token_type == TokenType.TABLE for token in tokens):
        return tokens
    written: list[Any] = []
    is_insert = False
    for number, token in enumerate(tokens):
        before = tokens[number - 1].token_type if number else TokenType.SEMICOLON
        if before == TokenType.SEMICOLON:
            is_insert = False
        is_insert = is_insert or token.token_type == TokenType.INSERT
        is_name = is_insert and before in (TokenType.VAR, TokenType.IDENTIFIER)
        if token.token_type == TokenType.TABLE and (before in _BEFORE_QUERY or is_name):
            _require_table_alone(tokens, number + 1)
            place = token.line, token.col, token.start, token.end
            words = ((TokenType.SELECT, "select"), (TokenType.STAR, "*"), (TokenType.FROM, "from"))
            written += [Token(kind, text, *place) for kind, text in words]
        else:
            written.append(token)
    return written


_TYPES = frozenset({*GmdbSql.Parser.TYPE_TOKENS, *GmdbSql.Parser.ENUM_TYPE_TOKENS}) - {
    TokenType.UNKNOWN,
    TokenType.NULL,
}


def _with_brackets(tokens: list[Any]) -> list[Any]:
    """Tokens in which the type ``int array`` is ``int[]``, which it means."""
    if not any(token.token_type == TokenType.ARRAY for token in tokens):
        return tokens
    written: list[Any] = []
    for number, token in enumerate(tokens):
        before = tokens[number - 1].token_type if number else TokenType.SEMICOLON
        if token.token_type == TokenType.ARRAY and (before in _TYPES or before == TokenType.R_PAREN):
            place = token.line, token.col, token.start, token.end
            written += [Token(TokenType.L_BRACKET, "[", *place), Token(TokenType.R_BRACKET, "]", *place)]
        else:
            written.append(token)
    return written


def parse(text: str) -> list[exp.Expr]:
    """The statements of a text.  Raises InvalidSyntax with the place of what cannot be read."""
    return _parsed(text, 0)


def parse_expression(text: str) -> exp.Expr:
    """An expression alone: of a DEFAULT or CHECK kept in the catalog, for instance."""
    statements = _parsed(f"SELECT\n{text}", 1)
    chosen = statements[0].expressions if len(statements) == 1 else []
    extras = [name for name, value in statements[0].args.items() if value and name not in ("kind", "expressions")]
    if len(chosen) != 1 or extras or isinstance(chosen[0], exp.Star | exp.Alias):
        raise InvalidSyntax(f"{text!r} is not one expression")
    for node in chosen[0].walk():
        if "line" in node.meta:
            node.meta["line"] -= 1
    return chosen[0]


def tokens_of(text: str) -> list[Any]:
    """The words, values and signs of a text."""
    try:
        tokens: list[Any] = GmdbSql().tokenize(text)
    except SqlglotError as error:
        raise InvalidSyntax(f"{error}", hint="A quote or a comment may not be closed") from None
    except Exception as error:  # its own bugs
        raise InvalidSyntax(f"syntax error: the statement cannot be read ({error})") from None
    return tokens


def _parsed(text: str, lines_before: int) -> list[exp.Expr]:
    try:
        reader = GmdbSql()
        tokens = _with_brackets(_with_tables_written_out(tokens_of(text)))
        require_finished(tokens, text)
        require_order(tokens)
        trees = [tree for tree in reader.parser().parse(tokens, text) if tree is not None]
        nodes: list[exp.Expr] = []
        for tree in trees:
            nodes += tree.walk()
            require_whole(tree, nodes)
        require_nothing_lost(tokens, nodes, _TYPES, lambda: _written(reader, trees))
        return trees
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        what = _INTERNALS.sub("", str(first.get("description") or error)).rstrip(". ")
        near = f" near {first['highlight']!r}" if first.get("highlight") else ""
        line = first["line"] - lines_before if first.get("line") else None
        raise InvalidSyntax(f"syntax error: {what}{near}", line, _column(first)) from None
    except RecursionError:
        raise InvalidSyntax("the statement is nested too deeply") from None
    except Error:
        raise
    except Exception as error:  # its own bugs, at texts that are not statements
        raise InvalidSyntax(f"syntax error: the statement cannot be read ({error})") from None


def _written(reader: GmdbSql, trees: Sequence[exp.Expr]) -> Sequence[Any]:
    """The tokens of statements as their trees have them."""
    tokens: Sequence[Any] = reader.tokenize("; ".join(tree.sql(dialect=GmdbSql) for tree in trees))
    return tokens


def place(node: exp.Expr) -> tuple[int | None, int | None]:
    """Line and column of a node's first token that has a place, both from 1."""
    places = [n.meta for n in node.walk() if n.meta.get("line") is not None]
    if not places:
        return (None, None) if node.parent is None or isinstance(node, exp.Query) else place(node.parent)
    first = min(places, key=lambda meta: (meta["line"], meta["col"]))
    return first["line"], max(1, first["col"] - (first["end"] - first["start"]))


def _column(error: dict[str, Any]) -> int | None:
    """sqlglot gives the column where the bad token ends."""
    return max(1, error["col"] - len(error.get("highlight") or "x") + 1) if error.get("col") else None
