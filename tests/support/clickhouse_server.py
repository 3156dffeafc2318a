"""A stand-in for ClickHouse's HTTP interface: CREATE TABLE, INSERT, SELECT, DELETE, settings, deduplication.

Stricter than the service: an unknown field of a row, a null for a column that is not Nullable, a number for a String
and a setting outside a short list are refused. A block is stored as a whole or not at all. Of SELECT and DELETE, only
comparisons that are joined by AND are modelled, and `(a, b) IN (…)`. Not modelled: sessions, other formats, expressions
in DEFAULT beyond their presence.
Source: ClickHouse documentation: HTTP Interface, JSONEachRow, Deduplicating inserts on retries, Asynchronous inserts,
data types, SELECT, Lightweight DELETE, String literals, setting date_time_input_format;
src/Server/HTTP/exceptionCodeToHTTPStatus.cpp for the status of an error.
"""

from __future__ import annotations

import base64
import hashlib
import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

from tests.support.strict_service import StrictService
from tests.support.webhook_server import Answer, Delivery

_PARAMETERS: Final = {
    "query",
    "database",
    "query_id",
    "default_format",
    "wait_end_of_query",
    "buffer_size",
    "quota_key",
}
_SETTINGS: Final = {
    *(
        "insert_deduplication_token",
        "insert_deduplicate",
        "async_insert",
        "wait_for_async_insert",
        "max_execution_time",
    ),
    *("async_insert_deduplicate", "date_time_input_format", "input_format_skip_unknown_fields", "insert_quorum"),
    *("input_format_null_as_default", "input_format_import_nested_json", "input_format_parallel_parsing"),
    *("max_insert_block_size", "min_insert_block_size_rows", "min_insert_block_size_bytes", "insert_null_as_default"),
    *("max_partitions_per_insert_block", "input_format_defaults_for_omitted_fields", "log_comment", "max_query_size"),
}
_TABLE_SETTINGS: Final = {
    *("non_replicated_deduplication_window", "replicated_deduplication_window", "index_granularity"),
    *("ttl_only_drop_parts", "storage_policy", "deduplicate_merge_projection_mode"),
}
#: Error codes and the status of the answer; all others have 500.
_ERRORS: Final = {
    6: ("CANNOT_PARSE_TEXT", 400),
    27: ("CANNOT_PARSE_INPUT_ASSERTION_FAILED", 400),
    41: ("CANNOT_PARSE_DATETIME", 400),
    50: ("UNKNOWN_TYPE", 404),
    53: ("TYPE_MISMATCH", 400),
    56: ("UNKNOWN_STORAGE", 404),
    57: ("TABLE_ALREADY_EXISTS", 500),
    60: ("UNKNOWN_TABLE", 404),
    62: ("SYNTAX_ERROR", 400),
    69: ("ARGUMENT_OUT_OF_BOUND", 500),
    81: ("UNKNOWN_DATABASE", 404),
    115: ("UNKNOWN_SETTING", 404),
    117: ("INCORRECT_DATA", 400),
    164: ("READONLY", 500),
    194: ("REQUIRED_PASSWORD", 401),
    202: ("TOO_MANY_SIMULTANEOUS_QUERIES", 500),
    252: ("TOO_MANY_PARTS", 500),
    497: ("ACCESS_DENIED", 403),
    469: ("VIOLATED_CONSTRAINT", 500),
    516: ("AUTHENTICATION_FAILED", 403),
}
_NAME: Final = r"(?:`[^`]+`|[A-Za-z_]\w*)"
_CREATE: Final = re.compile(
    rf"CREATE TABLE (IF NOT EXISTS )?(?:({_NAME})\.)?({_NAME}) ?\((.*)\) ?ENGINE ?= ?(\w+)(?:\((.*?)\))?( .*)?",
    re.IGNORECASE | re.DOTALL,
)
_INSERT: Final = re.compile(
    rf"INSERT INTO (?:TABLE )?(?:({_NAME})\.)?({_NAME})(?: ?\(([^)]*)\))?(?: SETTINGS (.*?))? FORMAT (\w+)[ \n]?",
    re.IGNORECASE | re.DOTALL,
)
_SELECT: Final = re.compile(
    rf"SELECT (count\(\)|{_NAME}) FROM ({_NAME})( FINAL)? WHERE (.+?)"
    rf"(?: ORDER BY ({_NAME}))?(?: LIMIT (\d+))? FORMAT (\w+)",
    re.DOTALL,
)
_DELETE: Final = re.compile(rf"DELETE FROM ({_NAME}) WHERE (.+)", re.DOTALL)
_STRING: Final = r"'(?:[^'\\]|\\.)*'"
_COMPARISON: Final = re.compile(rf"({_NAME}) (=|>|>=|<=) (\d+|{_STRING}|fromUnixTimestamp64Micro\(\d+\))", re.DOTALL)
_PAIRS: Final = re.compile(rf"\(({_NAME}), ({_NAME})\) IN \(((?:\({_STRING}, \d+\)(?:, )?)+)\)", re.DOTALL)
_ENGINES: Final = {"MergeTree", "ReplacingMergeTree", "ReplicatedMergeTree", "ReplicatedReplacingMergeTree"}


class ClickHouseError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Table:
    """*tokens*: of the last blocks stored, oldest first."""

    columns: dict[str, str]
    defaults: set[str]
    engine: str
    version: str
    order_by: list[str]
    partition_by: str
    window: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


class ClickHouse(StrictService):
    """One server with the database `default`. *failing*: answers with these error codes come first, one a request.
    *forbidden*: statements that the user has no right to, such as `SELECT`.

    *async_insert*: the user's profile sets it, as ClickHouse Cloud may; without async_insert_deduplicate, tokens of
    asynchronous inserts count for nothing. *timezone*: the server's, for times without a zone.
    """

    def __init__(
        self,
        *,
        user: str = "default",
        password: str = "",
        max_bytes: int = 100 << 20,
        async_insert: bool = False,
        timezone: str = "Asia/Kolkata",
    ) -> None:
        super().__init__(max_bytes=max_bytes)
        self.user, self.password = user, password
        self.async_insert = async_insert
        self.timezone = ZoneInfo(timezone)
        self.failing: list[int] = []
        self.forbidden: set[str] = set()
        self.tables: dict[str, Table] = {}
        self.blocks = 0

    def select(self, table: str, *, final: bool = False, **where: Any) -> list[dict[str, Any]]:
        """Return the rows with these values. *final*: of rows with an equal sorting key, the last version only."""
        stored = self.tables[table]
        rows = stored.rows
        if final and "Replacing" in stored.engine:
            newest: dict[tuple[Any, ...], dict[str, Any]] = {}
            for row in rows:
                key = tuple(row[name] for name in stored.order_by)
                if key not in newest or not stored.version or row[stored.version] >= newest[key][stored.version]:
                    newest[key] = row
            rows = list(newest.values())
        return [row for row in rows if row.items() >= where.items()]

    def answer(self, delivery: Delivery) -> Answer:
        user, password = self._credentials(delivery)
        if not (self.answers and self.is_write(delivery)) and (user, password) != (self.user, self.password):
            self.deliveries.append(delivery)
            return _error(516, "default: Authentication failed")
        headers = {name: value for name, value in delivery.headers.items() if name != "authorization"}
        return super().answer(Delivery(delivery.path, headers, delivery.body, delivery.method))

    def is_write(self, delivery: Delivery) -> bool:
        return "query=INSERT" in delivery.path

    def refuse(self, status: int, message: str) -> Answer:
        return Answer(status, {"content-type": "text/plain"}, message.encode())

    def serve(self, delivery: Delivery) -> Answer:
        if self.failing:
            return _error(self.failing.pop(0), "ordered by the test")
        url = urlsplit(delivery.path)
        if url.path not in ("/", "/ping"):
            return Answer(404, body=b"There is no handle " + url.path.encode())
        parameters = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        if url.path == "/ping" or (delivery.method == "GET" and not parameters):
            return Answer(body=b"Ok.\n")
        try:
            if delivery.method == "GET":
                raise ClickHouseError(164, "Cannot execute query in readonly mode")
            settings = {n: v for n, v in parameters.items() if n not in _PARAMETERS | {"user", "password"}}
            if unknown := settings.keys() - _SETTINGS:
                raise ClickHouseError(115, f"Setting {sorted(unknown)} is neither a builtin setting nor started with")
            if parameters.get("database", "default") != "default":
                raise ClickHouseError(81, "Database does not exist")
            answer = self._run(parameters.get("query", ""), delivery.body.decode(), settings)
        except ClickHouseError as error:
            return _error(error.code, str(error))
        except UnicodeDecodeError:
            return _error(117, "the body is no UTF-8")
        return Answer(200, {"X-ClickHouse-Summary": '{"written_rows":"1"}'}, answer)

    def _credentials(self, delivery: Delivery) -> tuple[str, str]:
        headers = delivery.headers
        basic = headers.get("authorization", "")
        if basic.startswith("Basic "):
            user, _, password = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
            return user, password
        return headers.get("x-clickhouse-user", "default"), headers.get("x-clickhouse-key", "")

    def _run(self, query: str, body: str, settings: dict[str, str]) -> bytes:
        text = f"{query}\n{body}" if query else body
        head = " ".join(text[:10].split()).upper()
        if head.partition(" ")[0] in self.forbidden:
            raise ClickHouseError(497, f"{self.user}: Not enough privileges")
        if head.startswith("INSERT"):
            match = _INSERT.match(text)
            if match is None:
                raise ClickHouseError(62, f"Syntax error: {text[:100]!r}")
            database, table, columns, inline, format_ = match.groups()
            self._known(database)
            if format_ != "JSONEachRow":
                raise ClickHouseError(62, f"format {format_!r} is not modelled")
            given = dict(re.findall(r"(\w+) ?= ?'?([^',]*)'?", inline or ""))
            if unknown := given.keys() - _SETTINGS:
                raise ClickHouseError(115, f"Unknown setting {sorted(unknown)}")
            names = [_bare(name) for name in columns.split(",")] if columns else []
            self._insert(_bare(table), names, text[match.end() :], settings | given)
        elif head.startswith("CREATE"):
            self._create(" ".join(text.split()).rstrip("; "))
        elif select := _SELECT.fullmatch(text):
            return self._select(*select.groups())
        elif delete := _DELETE.fullmatch(text):
            table = self._table(delete[1])
            gone = _where(table, delete[2])
            table.rows = [row for row in table.rows if not gone(row)]
        else:
            raise ClickHouseError(62, f"Syntax error, or not modelled: {text[:100]!r}")
        return b""

    def _select(
        self, column: str, name: str, final: str | None, where: str, order: str | None, limit: str | None, format_: str
    ) -> bytes:
        is_wanted = _where(self._table(name), where)
        rows = [row for row in self.select(name, final=bool(final)) if is_wanted(row)]
        if column == "count()" and format_ == "TabSeparated":
            return b"%d\n" % len(rows)
        if format_ != "JSONEachRow" or column not in self.tables[name].columns:
            raise ClickHouseError(47, f"Unknown column {column}, or a format that is not modelled")
        if order:
            rows.sort(key=lambda row: row[order])
        return b"".join(json.dumps({column: row[column]}).encode() + b"\n" for row in rows[: int(limit or len(rows))])

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise ClickHouseError(60, f"Table default.{name} does not exist")
        return self.tables[name]

    def _known(self, database: str | None) -> None:
        if database is not None and _bare(database) != "default":
            raise ClickHouseError(81, f"Database {database} does not exist")

    def _create(self, text: str) -> None:
        match = _CREATE.fullmatch(text)
        if match is None:
            raise ClickHouseError(62, f"Syntax error: {text[:200]!r}")
        lenient, database, name, columns, engine, arguments, rest = match.groups()
        self._known(database)
        name = _bare(name)
        if name in self.tables:
            if lenient:
                return
            raise ClickHouseError(57, f"Table default.{name} already exists")
        if engine not in _ENGINES:
            raise ClickHouseError(56, f"Unknown table engine {engine}")
        types: dict[str, str] = {}
        defaults: set[str] = set()
        for part in _split(columns):
            if part.upper().startswith(("INDEX ", "CONSTRAINT ", "PROJECTION ", "PRIMARY KEY")):
                continue
            column = re.fullmatch(rf"({_NAME}) (.+?)(?: (DEFAULT) .+?)?(?: CODEC\(.*\))?(?: COMMENT '.*')?", part)
            if column is None:
                raise ClickHouseError(62, f"Syntax error in column {part!r}")
            kind = column[2].strip()
            _parser(kind, self.timezone, best_effort=True)
            types[_bare(column[1])] = kind
            if column[3]:
                defaults.add(_bare(column[1]))
        clauses = _clauses(rest or "")
        settings = dict(re.findall(r"(\w+) ?= ?'?([^', ]*)", clauses.get("SETTINGS", "")))
        if unknown := settings.keys() - _TABLE_SETTINGS:
            raise ClickHouseError(115, f"Unknown setting {sorted(unknown)} for storage {engine}")
        if "ORDER BY" not in clauses:
            raise ClickHouseError(62, "ORDER BY or PRIMARY KEY expressions are missing")
        order_by = [_bare(name) for name in _split(clauses["ORDER BY"].strip("() "))]
        if unknown := set(order_by) - types.keys():
            raise ClickHouseError(47, f"Missing columns: {sorted(unknown)} in ORDER BY")
        if any(types[name].startswith(("Nullable", "LowCardinality(Nullable")) for name in order_by):
            raise ClickHouseError(44, "Sorting key contains nullable columns")
        version = _bare((arguments or "").split(",")[-1].strip()) if "Replacing" in engine and arguments else ""
        if version and version not in types:
            raise ClickHouseError(16, f"Version column {version} does not exist")
        replicated = int(settings.get("replicated_deduplication_window", 1000)) if "Replicated" in engine else 0
        window = replicated or int(settings.get("non_replicated_deduplication_window", 0))
        partition_by = clauses.get("PARTITION BY", "")
        self.tables[name] = Table(types, defaults, engine, version, order_by, partition_by, window)

    def _insert(self, name: str, columns: list[str], data: str, settings: Mapping[str, str]) -> None:
        if name not in self.tables:
            raise ClickHouseError(60, f"Table default.{name} does not exist")
        table = self.tables[name]
        if unknown := set(columns) - table.columns.keys():
            raise ClickHouseError(16, f"No such column {sorted(unknown)}")
        names = columns or list(table.columns)
        best_effort = settings.get("date_time_input_format", "basic").startswith("best_effort")
        parsers = {column: _parser(table.columns[column], self.timezone, best_effort=best_effort) for column in names}
        rows = []
        for number, line in enumerate(filter(None, (line.strip() for line in data.split("\n"))), start=1):
            rows.append(_row(line, parsers, table, number))
            if self.refused_text and self.refused_text in line:  # as a CONSTRAINT … CHECK does
                raise ClickHouseError(469, f"Constraint is violated at row {number}")
        if not rows:
            return
        if table.partition_by and len({_partition(table, row) for row in rows}) > 100:
            raise ClickHouseError(252, "Too many partitions for single INSERT block (more than 100)")
        asynchronous = settings.get("async_insert", str(int(self.async_insert))) == "1"
        deduplicates = settings.get("insert_deduplicate", "1") == "1"
        if asynchronous:
            deduplicates = settings.get("async_insert_deduplicate", "0") == "1"
        token = settings.get("insert_deduplication_token") or hashlib.sha256(data.encode()).hexdigest()
        if table.window and deduplicates:
            if token in table.tokens:
                return
            table.tokens = [*table.tokens, token][-table.window :]
        self.blocks += 1
        table.rows += rows


_Condition = Callable[[Mapping[str, Any]], bool]


def _where(table: Table, text: str) -> _Condition:
    """Return the condition *text*. Raises: ClickHouseError."""
    checks: list[_Condition] = []
    while text:
        match = _COMPARISON.match(text) or _PAIRS.match(text)
        if match is None or (match.end() < len(text) and not text.startswith(" AND ", match.end())):
            raise ClickHouseError(62, f"Syntax error, or not modelled: {text[:100]!r}")
        checks.append((_compared if match.re is _COMPARISON else _among)(table, *match.groups()))
        text = text[match.end() :].removeprefix(" AND ")
    return lambda row: all(check(row) for check in checks)


def _compared(table: Table, name: str, sign: str, given: str) -> _Condition:
    function = {"=": operator.eq, ">": operator.gt, ">=": operator.ge, "<=": operator.le}[sign]
    value: Any = int(given) if given.isdecimal() else _unquoted(given)
    kind = "Int" if given.isdecimal() else "String"
    if given.startswith("from"):
        value, kind = datetime.fromtimestamp(int(given.partition("(")[2][:-1]) / 1e6, UTC), "DateTime64"
    _check_column(table, name, kind)
    return lambda row: bool(function(row[name], value))


def _among(table: Table, first: str, second: str, pairs: str) -> _Condition:
    _check_column(table, first, "String")
    _check_column(table, second, "Int")
    found = re.findall(rf"\(({_STRING}), (\d+)\)", pairs, re.DOTALL)
    wanted = {(_unquoted(string), int(number)) for string, number in found}
    return lambda row: (row[first], row[second]) in wanted


def _check_column(table: Table, name: str, kind: str) -> None:
    if kind not in table.columns.get(name, ""):
        raise ClickHouseError(53 if name in table.columns else 47, f"{name} is no column of type {kind}")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def _row(line: str, parsers: Mapping[str, Callable[[Any], Any]], table: Table, number: int) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise ClickHouseError(27, f"Cannot parse JSON object here: {error}: (at row {number})") from None
    if not isinstance(given, dict):
        raise ClickHouseError(27, f"Cannot parse input: expected '{{': (at row {number})")
    if unknown := given.keys() - parsers.keys():
        message = f"Unknown field found while parsing JSONEachRow format: {sorted(unknown)[0]}: (at row {number})"
        raise ClickHouseError(117, message)
    row = {}
    for name, kind in table.columns.items():
        if name not in given:
            raise ClickHouseError(117, f"Field {name} is left out, and its default is not modelled: (at row {number})")
        try:
            row[name] = parsers[name](given[name])
        except (ValueError, TypeError, KeyError) as error:
            shown = f"{name}: cannot parse {str(given[name])[:60]!r} as {kind}: {error}: (at row {number})"
            raise ClickHouseError(41 if "DateTime" in kind else 27, shown) from None
    return row


def _parser(kind: str, timezone: ZoneInfo, *, best_effort: bool) -> Callable[[Any], Any]:
    """Return the function that reads a JSON value of a column of type *kind*."""
    name, _, inner = kind.partition("(")
    inner = inner[:-1] if inner.endswith(")") else inner
    if name == "LowCardinality":
        if not inner.startswith(("String", "Nullable(String)", "FixedString")):
            raise ClickHouseError(43, f"LowCardinality of {inner} is suspicious")
        return _parser(inner, timezone, best_effort=best_effort)
    if name == "Nullable":
        if inner.startswith("LowCardinality"):
            raise ClickHouseError(43, f"Nested type {inner} cannot be inside Nullable type")
        parse = _parser(inner, timezone, best_effort=best_effort)
        return lambda value: None if value is None else parse(value)
    if integer := re.fullmatch(r"(U?)Int(8|16|32|64)", name):
        bits = int(integer[2])
        low, high = (0, 1 << bits) if integer[1] else (-(1 << bits - 1), 1 << bits - 1)
        return lambda value: _integer(value, low, high)
    if name in ("DateTime", "DateTime64"):
        quoted = re.search(r"'([^']+)'", inner)
        zone = ZoneInfo(quoted[1]) if quoted else timezone
        digits = int(inner.split(",")[0]) if name == "DateTime64" else 0
        return lambda value: _time(value, zone, digits, best_effort=best_effort)
    if kind == "String":
        return lambda value: _of(value, str)
    raise ClickHouseError(50, f"Unknown data type family: {name}")


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"expected {kind.__name__}")
    return value


def _integer(value: Any, low: int, high: int) -> int:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else _of(value, int)
    if not low <= number < high:
        raise ValueError("out of range")
    return int(number)


def _time(value: Any, zone: ZoneInfo, digits: int, *, best_effort: bool) -> datetime:
    """Read a time as `basic` or `best_effort` do; a text without a zone is in the column's."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        scaled = value / 10**digits if value >= 10**10 else value
        return datetime.fromtimestamp(scaled, UTC)
    pattern = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,9})?"
    if not re.fullmatch(pattern, value) and not best_effort:
        raise ValueError("the parser is date_time_input_format=basic")
    parsed = datetime.fromisoformat(value)
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)
    if parsed.year not in range(1900, 2300):
        raise ValueError("out of range")
    return parsed.astimezone(UTC)


def _partition(table: Table, row: Mapping[str, Any]) -> str:
    match = re.fullmatch(r"\(?(to\w+)\((\w+)\)\)?", table.partition_by)
    if match is None:
        return str(row.get(table.partition_by))
    value = row[match[2]]
    formats = {"toYYYYMM": "%Y%m", "toDate": "%Y%m%d", "toYYYYMMDD": "%Y%m%d", "toMonday": "%Y%W"}
    return str(value.strftime(formats[match[1]]))


def _clauses(text: str) -> dict[str, str]:
    words = r"(PARTITION BY|PRIMARY KEY|ORDER BY|SAMPLE BY|TTL|SETTINGS|COMMENT)"
    parts = re.split(words, text, flags=re.IGNORECASE)
    return {parts[at].upper(): parts[at + 1].strip() for at in range(1, len(parts), 2)}


def _split(text: str) -> list[str]:
    """Split at the commas outside of parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _bare(name: str) -> str:
    return name.strip().strip("`")


def _error(code: int, message: str) -> Answer:
    name, status = _ERRORS.get(code, ("ERROR", 500))
    headers = {"X-ClickHouse-Exception-Code": str(code), "content-type": "text/plain"}
    return Answer(status, headers, f"Code: {code}. DB::Exception: {message}. ({name}) (version 25.8)\n".encode())
