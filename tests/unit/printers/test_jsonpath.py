"""JSONPath as kubectl's documentation describes it (kubernetes.io/docs/reference/kubectl/jsonpath)."""

from __future__ import annotations

from typing import Any

import pytest

from eventbus.printers.jsonpath import Template, relaxed_path

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
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1].name}", "e2e"),
        ("{.items[0:1].metadata.name}", "127.0.0.1"),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        ("{.users[?(@.user.username)].name}", "e2e"),
        ('{range .items[*]}[{.metadata.name}, {.status.capacity.cpu}] {end}', "[127.0.0.1, 4] [127.0.0.2, 8] "),
        (r'{range .items[*]}{.metadata.name}{"\t"}{end}', "127.0.0.1\t127.0.0.2\t"),
        (r"{.items[*].metadata.labels.kubernetes\.io/hostname}", "127.0.0.1"),
        ("{range .items[*]}{range .status.addresses[*]}{.type},{end};{end}", "LegacyHostIP,;LegacyHostIP,another,;"),
        ("{.users[1].user}", '{"username":"admin","password":"secret"}'),
        ("{$.kind}{.nothing}{.items[9].x}", "List"),
        ("plain", "plain"),
        ("{.items[*]['metadata.name','kind']}", "127.0.0.1 127.0.0.2 None None"),
        ("{.items[*]['metadata.name', 'status.capacity.cpu']}", "127.0.0.1 127.0.0.2 4 8"),
        ("{.users[1,0].name}", "e2e myself"),
        (r"{.items[0].metadata.labels['kubernetes\.io/hostname']}", "127.0.0.1"),
        ("{.items[1]['metadata.name']}", "127.0.0.2"),
        ('{range .nothing[*]}x{end}END{"\\n"}', "END\n"),
    ],
)  # fmt: skip
def test_templates_of_the_documentation(template: str, text: str) -> None:
    assert Template(template).render(LIST) == text


@pytest.mark.parametrize("template", ["{.a", "{end}", "{range .a}", "{.a[}", '{"x}', "{.a[?(@.b==c)]}", "}"])
def test_what_cannot_be_read_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"\w|}"):
        Template(template)


@pytest.mark.parametrize("text", ["{.kind}", ".kind", "kind", "{$.kind}", "['kind']"])
def test_a_path_may_be_typed_with_less(text: str) -> None:
    assert relaxed_path(text).find(LIST) == ["List"]
