"""A stand-in for Elasticsearch 8 and OpenSearch 2: index templates, data streams, `_bulk`, queries, delete by query.

Written from the published specification and reference. It is stricter than the service: an unknown parameter of a
mapping, a number in a string for a numeric field, an index without a template, and a query on a field that is not
mapped are refused. Not modelled: dynamic mappings, field types that our sink does not use, routing, pipelines,
component templates, `update` and `delete`, analyzers beyond words in lower case. Searches see the documents of before
the last `_refresh`, as on a server that refreshes by itself later.
Source: elastic/elasticsearch-specification (bulk, indices.put_index_template, TypeMapping); Elasticsearch reference:
Bulk API, Data streams, Field data types, HTTP settings, Search API, Delete by query API, Query DSL; OpenSearch
documentation: Supported field types.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.strict_service import StrictService
from tests.support.webhook_server import Answer, Delivery

MAX_BYTES: Final = 100 << 20  # http.max_content_length
MAX_ID_BYTES: Final = 512
MAX_TERM_BYTES: Final = 32_766

_COMMON: Final = {"pretty", "human", "error_trace", "filter_path"}
_BULK: Final = _COMMON | {
    *("pipeline", "refresh", "routing", "timeout", "wait_for_active_shards", "require_alias", "require_data_stream"),
    *("_source", "_source_excludes", "_source_includes", "list_executed_pipelines", "include_source_on_error"),
}
_AVAILABLE: Final = {"ignore_unavailable", "allow_no_indices", "expand_wildcards"}
#: The parameters of the other requests about a data stream.
_QUERIES: Final = {
    "_refresh": _COMMON | _AVAILABLE,
    "_search": _COMMON | _AVAILABLE | {"timeout", "track_total_hits", "preference", "routing"},
    "_delete_by_query": _COMMON
    | _AVAILABLE
    | {
        "conflicts",
        "refresh",
        "timeout",
        "wait_for_completion",
        "scroll_size",
        "slices",
        "max_docs",
        "requests_per_second",
    },
}
MAX_RESULTS: Final = 10_000  # index.max_result_window
MAX_TERMS: Final = 65_536  # index.max_terms_count
_ACTION: Final = {
    *("_index", "_id", "routing", "if_primary_term", "if_seq_no", "version", "version_type"),
    *("dynamic_templates", "pipeline", "require_alias", "require_data_stream", "list_executed_pipelines"),
}
_TEMPLATE: Final[dict[str, type]] = {
    "index_patterns": list,
    "composed_of": list,
    "template": dict,
    "data_stream": dict,
    "priority": int,
    "version": int,
    "_meta": dict,
    "allow_auto_create": bool,
    "ignore_missing_component_templates": list,
    "deprecated": bool,
}
_MAPPINGS: Final = {
    *("dynamic", "properties", "_meta", "_source", "_routing", "dynamic_templates", "date_detection", "runtime"),
    *("numeric_detection", "dynamic_date_formats", "_data_stream_timestamp"),
}
_SETTINGS: Final = {
    *("number_of_shards", "number_of_replicas", "refresh_interval", "codec", "lifecycle.name", "hidden", "mode"),
    *("mapping.total_fields.limit", "mapping.ignore_malformed", "sort.field", "sort.order", "auto_expand_replicas"),
    *("mapping.total_fields.ignore_dynamic_beyond_limit", "default_pipeline", "translog.durability"),
}
_PARAMETERS: Final = {"index", "doc_values", "store", "meta", "copy_to", "fields"}
_TYPES: Final[dict[str, set[str]]] = {
    "keyword": _PARAMETERS | {"ignore_above", "null_value", "norms", "eager_global_ordinals", "normalizer"},
    "text": _PARAMETERS - {"doc_values"} | {"analyzer", "norms", "index_options", "search_analyzer"},
    "long": _PARAMETERS | {"coerce", "ignore_malformed", "null_value"},
    "integer": _PARAMETERS | {"coerce", "ignore_malformed", "null_value"},
    "date": _PARAMETERS | {"format", "locale", "ignore_malformed", "null_value"},
    "object": {"dynamic", "enabled", "properties", "subobjects"},
}
_ISO_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?")

Document = dict[str, Any]


class Elasticsearch(StrictService):
    """One cluster. *rejecting*: so many items are refused with 429, as by a full queue.

    *streams*: the documents by id, of each generation of a data stream's backing index. *forbidden*: requests that the
    user has no right to, such as `_search`.
    """

    def __init__(
        self,
        *,
        flavor: Literal["elasticsearch", "opensearch"] = "elasticsearch",
        authorization: str = "",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        super().__init__(authorization=authorization, max_bytes=max_bytes)
        self.flavor = flavor
        self.rejecting = 0
        self.streams: dict[str, list[dict[str, Document]]] = {}
        self.forbidden: set[str] = set()
        self._searchable: dict[str, set[str]] = {}  # the ids of each data stream
        self._mappings: dict[str, dict[str, Any]] = {}
        self.templates: dict[str, dict[str, Any]] = {}
        if flavor == "elasticsearch":  # the built-in templates
            for kind in ("logs", "metrics", "synthetics", "traces"):
                self.templates[kind] = {
                    "index_patterns": [f"{kind}-*-*"],
                    "data_stream": {},
                    "priority": 100,
                    "template": {"mappings": {"properties": {"@timestamp": {"type": "date"}}}},
                }

    def documents(self, stream: str) -> list[Document]:
        """Return the sources of all documents of a data stream, oldest generation first."""
        return [source for generation in self.streams.get(stream, []) for source in generation.values()]

    def search(self, stream: str, *, term: Mapping[str, Any], since: str = "0000") -> list[Document]:
        """Return the documents whose fields equal *term*, newer than *since*. A text field matches by its words.

        Raises KeyError for a field that no query finds: absent from the mapping, or not indexed.
        """
        mapping = self._mappings[stream]
        return [
            source
            for source in self.documents(stream)
            if source["@timestamp"] >= since and all(_matches(source, mapping, *pair) for pair in term.items())
        ]

    def is_write(self, delivery: Delivery) -> bool:
        return "/_bulk" in delivery.path

    def refuse(self, status: int, message: str, kind: str = "") -> Answer:
        kinds = {401: "security_exception", 413: "content_too_long_exception", 429: "es_rejected_execution_exception"}
        error = {"type": kind or kinds.get(status, "illegal_argument_exception"), "reason": message}
        return _json({"error": {"root_cause": [error], **error}, "status": status}, status)

    def serve(self, delivery: Delivery) -> Answer:
        url = urlsplit(delivery.path)
        parts = [unquote(part) for part in url.path.split("/")[1:]]
        query = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        if delivery.method == "GET" and parts == [""]:
            version = {"number": "8.17.0"} if self.flavor == "elasticsearch" else self._opensearch_version()
            return _json({"name": "node-1", "cluster_name": "test", "version": version, "tagline": "You Know"})
        kind = delivery.headers.get("content-type", "").split(";")[0].strip().lower()
        if parts[0] == "_index_template" and len(parts) == 2 and delivery.method in ("PUT", "POST"):
            if kind != "application/json":
                return self.refuse(406, f"Content-Type header [{kind}] is not supported", "media_type_header_exception")
            if unknown := query.keys() - _COMMON - {"create", "master_timeout", "cause"}:
                return self._unrecognized(url.path, unknown)
            return self._put_template(parts[1], delivery.body, create=query.get("create") == "true")
        if parts[-1] == "_bulk" and len(parts) <= 2 and delivery.method in ("PUT", "POST"):
            if kind not in ("application/x-ndjson", "application/json"):
                return self.refuse(406, f"Content-Type header [{kind}] is not supported", "media_type_header_exception")
            if unknown := query.keys() - _BULK:
                return self._unrecognized(url.path, unknown)
            return self._bulk(delivery.body, parts[0] if len(parts) == 2 else "", query.get("filter_path", ""))
        if len(parts) == 2 and parts[1] in _QUERIES and delivery.method == "POST":
            if unknown := query.keys() - _QUERIES[parts[1]]:
                return self._unrecognized(url.path, unknown)
            if parts[1] in self.forbidden:
                return self.refuse(403, f"action [{parts[1]}] is unauthorized", "security_exception")
            return self._query(parts[0], parts[1], delivery.body, kind, query)
        return self.refuse(400, f"no handler found for uri [{url.path}] and method [{delivery.method}]")

    def _query(self, stream: str, verb: str, body: bytes, kind: str, query: Mapping[str, str]) -> Answer:
        """Answer `_refresh`, `_search` and `_delete_by_query`."""
        if stream not in self.streams:
            if query.get("ignore_unavailable") != "true":
                return self.refuse(404, f"no such index [{stream}]", "index_not_found_exception")
            return _json({"hits": {"hits": []}} if verb == "_search" else {"deleted": 0, "failures": []})
        if verb == "_refresh":
            self._searchable[stream] = {key for index in self.streams[stream] for key in index}
            return _json({"_shards": {"total": 2, "successful": 2, "failed": 0}})
        if kind != "application/json":
            return self.refuse(406, f"Content-Type header [{kind}] is not supported", "media_type_header_exception")
        try:
            asked = json.loads(body)
            allowed = {"query", "size", "sort", "_source"} if verb == "_search" else {"query", "max_docs"}
            if unknown := asked.keys() - allowed:
                raise ValueError(f"unknown key for a VALUE in {sorted(unknown)}")
            found = self._find(stream, asked["query"])
            for name in reversed(asked.get("sort", [])):
                _property(self._mappings[stream], name)
                found.sort(key=lambda hit: hit[2][name])
        except ValueError as error:
            return self.refuse(400, str(error), "parsing_exception")
        if verb == "_delete_by_query":
            for number, key, _ in found:
                del self.streams[stream][number][key]
            counts = {"total": len(found), "deleted": len(found), "batches": 1, "version_conflicts": 0, "noops": 0}
            return _json({"took": 1, "timed_out": False, **counts, "failures": []})
        if (size := asked.get("size", 10)) > MAX_RESULTS:
            return self.refuse(400, f"Result window is too large: {size} of {MAX_RESULTS}")
        names = asked.get("_source")
        hits = [
            {"_index": f".ds-{stream}-{number}", "_id": key, "_source": {n: source[n] for n in names or source}}
            for number, key, source in found[:size]
        ]
        reply = {"took": 1, "timed_out": False, "hits": {"total": {"value": len(found)}, "hits": hits}}
        return _json(_filtered(reply, query["filter_path"].split(",")) if "filter_path" in query else reply)

    def _find(self, stream: str, query: Any) -> list[tuple[int, str, Document]]:
        """Return the generation, id and source of the searchable documents that a query matches. Raises: ValueError."""
        mapping, searchable = self._mappings[stream], self._searchable.get(stream, set())
        return [
            (number, key, source)
            for number, index in enumerate(self.streams[stream])
            for key, source in index.items()
            if key in searchable and _selects(query, mapping, key, source)
        ]

    def _opensearch_version(self) -> dict[str, str]:
        return {"distribution": "opensearch", "number": "2.18.0"}

    def _unrecognized(self, path: str, unknown: set[str]) -> Answer:
        return self.refuse(400, f"request [{path}] contains unrecognized parameters: {sorted(unknown)}")

    def _put_template(self, name: str, body: bytes, *, create: bool) -> Answer:
        try:
            template = json.loads(body)
        except ValueError as error:
            return self.refuse(400, str(error), "parse_exception")
        if problem := self._template_problem(name, template):
            return self.refuse(400, problem)
        if create and name in self.templates:
            return self.refuse(400, f"index template [{name}] already exists")
        self.templates[name] = template
        return _json({"acknowledged": True})

    def _template_problem(self, name: str, template: Any) -> str:
        if not isinstance(template, dict):
            return "the template is no object"
        for key, value in template.items():
            if not isinstance(value, _TEMPLATE.get(key, ())):
                return f"[index_template] unknown field [{key}] or wrong type"
        patterns = template.get("index_patterns")
        if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
            return "index patterns are missing"
        for other, existing in self.templates.items():
            same = existing.get("priority", 0) == template.get("priority", 0)
            if other != name and same and _overlap(patterns, existing["index_patterns"]):
                return f"index template [{name}] has patterns of [{other}] with the same priority"
        if template.get("data_stream", {}).keys() - {"hidden", "allow_custom_routing", "timestamp_field"}:
            return "[data_stream] unknown field"
        inner = template.get("template", {})
        known = {"settings", "mappings", "aliases"}
        if self.flavor == "elasticsearch":
            known |= {"lifecycle", "data_stream_options"}
        if inner.keys() - known:
            return f"[template] unknown field {sorted(inner.keys() - known)}"
        for setting in _flat(inner.get("settings", {})):
            if setting.removeprefix("index.") not in _SETTINGS:
                return f"unknown setting [{setting}]"
        mappings = inner.get("mappings", {})
        if mappings.keys() - _MAPPINGS:
            return f"Root mapping definition has unsupported parameters: {sorted(mappings.keys() - _MAPPINGS)}"
        if mappings.get("dynamic") not in (False, "false", "strict"):
            return f"dynamic: {mappings.get('dynamic')!r} is not modelled"
        return self._properties_problem(mappings.get("properties", {}))

    def _properties_problem(self, properties: Mapping[str, Any]) -> str:
        for name, field in properties.items():
            kind = field.get("type", "object")
            if kind not in _TYPES:
                return f"No handler for type [{kind}] declared on field [{name}]"
            if unknown := field.keys() - _TYPES[kind] - {"type"}:
                return f"unknown parameter {sorted(unknown)} on mapper [{name}] of type [{kind}]"
            if problem := self._properties_problem(field.get("properties", {})):
                return problem
        return ""

    def _bulk(self, body: bytes, default: str, filter_path: str) -> Answer:
        if not body.endswith(b"\n"):
            return self.refuse(400, "The bulk request must be terminated by a newline [\\n]")
        lines = body.split(b"\n")[:-1]
        if not lines or len(lines) % 2:
            return self.refuse(400, "an action without a source", "action_request_validation_exception")
        requests = []
        for number in range(0, len(lines), 2):
            try:
                ((verb, target),) = json.loads(lines[number]).items()
            except (ValueError, AttributeError):
                return self.refuse(400, f"Malformed action/metadata line [{number + 1}]")
            if verb not in ("index", "create") or not isinstance(target, dict) or target.keys() - _ACTION:
                return self.refuse(400, f"Malformed action/metadata line [{number + 1}]: unknown action or parameter")
            target = {"_index": default, **target}
            if not target["_index"]:
                return self.refuse(400, "index is missing", "action_request_validation_exception")
            if len(target.get("_id", "").encode()) > MAX_ID_BYTES:
                return self.refuse(400, "id is too long", "action_request_validation_exception")
            requests.append((verb, target, lines[number + 1]))
        items = [{verb: self._write(verb, target, source)} for verb, target, source in requests]
        failed = any("error" in item for pair in items for item in pair.values())
        reply = {"took": 1, "errors": failed, "items": items}
        return _json(_filtered(reply, filter_path.split(",")) if filter_path else reply)

    def _write(self, verb: str, target: Mapping[str, Any], line: bytes) -> dict[str, Any]:
        stream, key = target["_index"], target.get("_id") or f"made-{len(self.documents(target['_index']))}"

        def failed(status: int, kind: str, reason: str) -> dict[str, Any]:
            return {"_index": stream, "_id": key, "status": status, "error": {"type": kind, "reason": reason}}

        if self.rejecting:
            self.rejecting -= 1
            return failed(429, "es_rejected_execution_exception", "rejected execution of primary operation")
        template = self._template_of(stream)
        if template is None or "data_stream" not in template:
            return failed(404, "index_not_found_exception", f"no such index [{stream}] and no template for it")
        if verb != "create":
            reason = "only write ops with an op_type of create are allowed in data streams"
            return failed(400, "illegal_argument_exception", reason)
        if stream not in self.streams:
            self.streams[stream] = [{}]
            mappings = template.get("template", {}).get("mappings", {})
            self._mappings[stream] = json.loads(json.dumps(mappings))
        index = self.streams[stream][-1]
        try:
            source = json.loads(line)
            if not isinstance(source, dict):
                raise ValueError("the source is no object")
            if self.refused_text and self.refused_text in json.dumps(source):
                raise ValueError("the document is refused")
            if not isinstance(source.get("@timestamp"), str | int):
                raise ValueError("documents must contain a single-valued timestamp field '@timestamp' of date type")
            self._map(self._mappings[stream], source)
        except ValueError as error:
            return failed(400, "document_parsing_exception", str(error))
        if key in index:
            reason = f"[{key}]: version conflict, document already exists (current version [1])"
            return failed(409, "version_conflict_engine_exception", reason)
        index[key] = source
        shards = {"total": 2, "successful": 1, "failed": 0}
        made = {"_index": f".ds-{stream}-2026.01.01-{len(self.streams[stream]):06d}", "_id": key, "_version": 1}
        return {
            **made,
            "result": "created",
            "_shards": shards,
            "_seq_no": len(index),
            "_primary_term": 1,
            "status": 201,
        }

    def _template_of(self, name: str) -> dict[str, Any] | None:
        matching = [
            template
            for template in self.templates.values()
            if any(fnmatchcase(name, pattern) for pattern in template["index_patterns"])
        ]
        return max(matching, key=lambda template: template.get("priority", 0), default=None)

    def _map(self, mapping: Mapping[str, Any], source: Mapping[str, Any]) -> None:
        """Check *source* against *mapping*. Raises: ValueError."""
        properties = mapping.get("properties", {})
        for name, value in source.items():
            if not name or "." in name:
                raise ValueError(f"field name [{name}]: dots in names are not modelled")
            if value is None or value == []:
                continue
            if name not in properties:
                if mapping.get("dynamic") == "strict":
                    raise ValueError(f"mapping set to strict, dynamic introduction of [{name}] is not allowed")
                continue
            field = properties[name]
            kind = field.get("type", "object")
            for element in value if isinstance(value, list) else [value]:
                if kind == "object":
                    if not isinstance(element, dict):
                        raise ValueError(f"object mapping for [{name}] tried to parse field as object, but got a value")
                    if field.get("enabled", True):
                        self._map({"dynamic": mapping.get("dynamic")} | field, element)
                elif not _CHECKS[kind](element, field):
                    raise ValueError(f"failed to parse field [{name}] of type [{kind}]: {str(element)[:80]!r}")


def _is_keyword(value: Any, field: Mapping[str, Any]) -> bool:
    if not isinstance(value, str | int | float | bool):
        return False
    return len(str(value)) > field.get("ignore_above", 1 << 31) or len(str(value).encode()) <= MAX_TERM_BYTES


def _is_date(value: Any, field: Mapping[str, Any]) -> bool:
    formats = field.get("format", "strict_date_optional_time||epoch_millis")
    if isinstance(value, int) and not isinstance(value, bool):
        return "epoch_millis" in formats
    if not isinstance(value, str) or not _ISO_DATE.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_integer(bits: int) -> Callable[[Any, Mapping[str, Any]], bool]:
    def check(value: Any, _field: Mapping[str, Any]) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits

    return check


_CHECKS: Final[dict[str, Callable[[Any, Mapping[str, Any]], bool]]] = {
    "keyword": _is_keyword,
    "text": lambda value, _: isinstance(value, str | int | float | bool),
    "long": _is_integer(63),
    "integer": _is_integer(31),
    "date": _is_date,
}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        flat |= _flat(inner, f"{prefix}{name}.") if isinstance(inner, dict) else {f"{prefix}{name}": inner}
    return flat


def _overlap(patterns: list[str], others: list[str]) -> bool:
    """Whether a name may match both: one pattern, its wildcards taken as text, matches the other."""
    pairs = [(a, b) for a in patterns for b in others]
    return any(fnmatchcase(a.replace("*", "x"), b) or fnmatchcase(b.replace("*", "x"), a) for a, b in pairs)


def _matches(source: Mapping[str, Any], mapping: Mapping[str, Any], path: str, wanted: Any) -> bool:
    """Whether the field *path* of a document equals *wanted*, as a query on an indexed field sees it."""
    head, _, rest = path.partition(".")
    field = mapping.get("properties", {})[head]
    value = source.get(head)
    kind = field.get("type", "object")
    if rest and kind == "object":
        return isinstance(value, dict) and _matches(value, field, rest, wanted)
    if field.get("index", True) is False and field.get("doc_values", True) is False:
        raise KeyError(f"field {path!r} is not indexed")
    if kind == "text" and not rest:
        words = re.findall(r"\w+", str(value).lower())
        return all(word in words for word in re.findall(r"\w+", str(wanted).lower()))
    return value is not None and value == wanted and len(str(value)) <= field.get("ignore_above", 1 << 31)


def _property(mapping: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the field *name* of a mapping, which a query can use. Raises: ValueError."""
    field: Mapping[str, Any] | None = mapping.get("properties", {}).get(name)
    if field is None or field.get("type") in (None, "object", "text"):
        raise ValueError(f"No mapping found for [{name}], or it has no single values")
    return field


def _selects(query: Any, mapping: Mapping[str, Any], key: str, source: Document) -> bool:
    """Whether a document matches. Raises: ValueError: it is no query, or one that is not modelled."""
    ((kind, given),) = query.items()
    if kind == "bool":
        if given.keys() != {"filter"}:
            raise ValueError(f"[bool] {sorted(given)}: only filter is modelled")
        return all([_selects(inner, mapping, key, source) for inner in given["filter"]])
    if kind == "ids":
        if given.keys() != {"values"}:
            raise ValueError("[ids] query does not support other keys than [values]")
        return key in given["values"]
    ((name, wanted),) = given.items()
    field, value = _property(mapping, name), source.get(name)
    if kind in ("term", "terms"):
        values = wanted if kind == "terms" else [wanted]
        if len(values) > MAX_TERMS or not all(_CHECKS[field["type"]](one, field) for one in values):
            raise ValueError(f"[{kind}] failed to create query for [{name}]")
        return value in values and len(str(value)) <= field.get("ignore_above", 1 << 31)
    if kind != "range" or not wanted or wanted.keys() - {"gt", "gte", "lt", "lte"}:
        raise ValueError(f"[{kind}] query, or a key of it, is not known")
    if not all(_CHECKS[field["type"]](bound, field) for bound in wanted.values()):
        raise ValueError(f"[range] failed to parse a bound of [{name}]")
    as_value: Callable[[Any], Any] = datetime.fromisoformat if field["type"] == "date" else lambda one: one
    return value is not None and all(
        getattr(operator, {"gte": "ge", "lte": "le"}.get(word, word))(as_value(value), as_value(bound))
        for word, bound in wanted.items()
    )


def _filtered(value: Any, paths: list[str]) -> Any:
    """Return what `filter_path` leaves of a reply."""
    if isinstance(value, list):
        return [kept for element in value if (kept := _filtered(element, paths)) not in ({}, [])]
    result = {}
    for name, inner in value.items():
        heads = [path.partition(".") for path in paths]
        rests = [rest for head, _, rest in heads if fnmatchcase(name, head)]
        rests += [path for path in paths if path.startswith("**")]
        if any(rest == "" for rest in rests):
            result[name] = inner
        elif rests and isinstance(inner, dict | list) and (kept := _filtered(inner, rests)) not in ({}, []):
            result[name] = kept
    return result


def _json(value: Any, status: int = 200) -> Answer:
    headers = {"content-type": "application/json", "X-elastic-product": "Elasticsearch"}
    return Answer(status, headers, json.dumps(value).encode())
