"""JSONPath as kubectl's documentation describes it (kubernetes.io/docs/reference/kubectl/jsonpath)."""

from __future__ import annotations

from typing import Any

import pytest

from eventbus.cli.printers.jsonpath import find, parse_relaxed_path, parse_template, render

LIST: dict[str, Any] = {
    "kind": "List",
    "items": [
        {"kind": "None", "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
         "status": {"capacity": {"cpu": "4"}, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}]}},
        {"kind": "None", "metadata": {"name": "127.0.0.2"},
         "status": {"capacity": {"cpu": "8"}, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.2"},
                                                            {"type": "another", "address": "127.0.0.3"}]}},
    ],
    "users": [{"name": "myself", "user": {}}, {"name": "e2e", "user": {"username": "admin", "password": "secret"}}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("kind is {.kind}", "kind is List"),
        ("{['kind']}", "List"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1].name}", "e2e"),
        (r"{.items[*].metadata.labels.kubernetes\.io/hostname}", "127.0.0.1"),
        ("{.users[1].user}", '{"username":"admin","password":"secret"}'),
        ("{$.kind}{.nothing}{.items[9].x}", "List"),
        ("plain", "plain"),
        (r'{.kind}{"\t"}{.users[0].name}', "List\tmyself"),
        ("{.users[1].user.*}", "admin secret"),
        (r"{.items[0].metadata.labels['kubernetes\.io/hostname']}", "127.0.0.1"),
        ("{.items[1]['metadata.name']}", "127.0.0.2"),
    ],
)  # fmt: skip
def test_templates_of_the_documentation(template: str, text: str) -> None:
    assert render(parse_template(template), LIST) == text


@pytest.mark.parametrize("template", ["{.a", "{.a[}", '{"x}', "}"])
def test_a_template_with_a_mistake_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"\w|}"):
        parse_template(template)


@pytest.mark.parametrize(
    "template",
    ["{range .items[*]}{.a}{end}", "{end}", "{..name}", "{.a[0:1]}", "{.a[0,1]}", '{.a[?(@.b=="c")]}', "{['a','b']}"],
)
def test_a_step_that_only_kubectl_has_names_kubectl(template: str) -> None:
    with pytest.raises(ValueError, match="kubectl get events -o jsonpath="):
        parse_template(template)


@pytest.mark.parametrize("text", ["{.kind}", ".kind", "kind", "{$.kind}", "['kind']"])
def test_a_path_may_be_typed_with_less(text: str) -> None:
    assert find(parse_relaxed_path(text), LIST) == ["List"]
