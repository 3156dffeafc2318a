from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from eventbus.errors import InvalidEvent
from eventbus.model.event import ObjectReference
from eventbus.model.reference import event_name, reference_from_text, reference_to
from tests.builders import make_event, make_reference

POD = make_reference(resource_version="7")
MANIFEST = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-0", "namespace": "default", "uid": "uid-1", "resourceVersion": "7", "labels": {}},
    "spec": {"containers": []},
}


@dataclass
class Meta:
    """An object's metadata like lightkube's ObjectMeta: camelCase attributes, None where unset."""

    name: str | None = "web-0"
    namespace: str | None = "default"
    uid: str | None = "uid-1"
    resourceVersion: str | None = "7"


@dataclass
class Pod:
    apiVersion: str | None = "v1"
    kind: str | None = "Pod"
    metadata: Any = field(default_factory=Meta)


class Kind(str, Enum):  # noqa: UP042 - the older way, whose str() is not its value
    POD = "Pod"


# As the official client: snake_case attributes.
official = SimpleNamespace(
    api_version="v1",
    kind="Pod",
    metadata=SimpleNamespace(name="web-0", namespace="default", uid="uid-1", resource_version="7"),
)


@pytest.mark.parametrize(
    "obj",
    [
        MANIFEST,
        MappingProxyType(MANIFEST),
        Pod(),
        official,
        SimpleNamespace(apiVersion="v1", kind=Kind.POD, metadata=MANIFEST["metadata"]),
        {"kind": "Pod", "apiVersion": "v1", "metadata": Meta()},
        {
            "kind": "Pod",
            "namespace": "default",
            "name": "web-0",
            "uid": "uid-1",
            "apiVersion": "v1",
            "resourceVersion": "7",
        },
        {
            "kind": "Pod",
            "namespace": "default",
            "name": "web-0",
            "uid": "uid-1",
            "api_version": "v1",
            "resource_version": "7",
            "field_path": None,
        },
    ],
    ids=["manifest", "any mapping", "lightkube", "official", "enum kind", "mixed", "camelCase keys", "snake_case keys"],
)
def test_every_way_to_name_an_object_gives_the_same_reference(obj: object) -> None:
    assert reference_to(obj) == POD
    assert type(reference_to(obj).kind) is str


def test_a_reference_is_used_as_it_is_even_when_empty() -> None:
    empty = ObjectReference()
    assert reference_to(empty) is empty


def test_a_flat_reference_keeps_its_field_path() -> None:
    obj = {"kind": "Pod", "name": "web-0", "fieldPath": "spec.containers{web}"}
    assert reference_to(obj) == ObjectReference("Pod", "default", "web-0", field_path="spec.containers{web}")


def test_list_metadata_gives_kind_version_and_resource_version() -> None:
    obj = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "99"}}
    assert reference_to(obj) == ObjectReference(kind="PodList", api_version="v1", resource_version="99")


def test_an_event_can_be_the_object_of_an_event() -> None:
    reference = reference_to(make_event())
    assert (reference.kind, reference.api_version, reference.name) == ("Event", "v1", "web-0.17a6101701650000")


@pytest.mark.parametrize(
    "obj",
    [
        "Order/7",
        "default/Order/7",
        {"kind": "Order", "name": "7"},
        {"kind": "Order", "metadata": {"name": "7"}},
        {"kind": "Order", "metadata": {"name": "7", "namespace": None}},
        SimpleNamespace(kind="Order", metadata=SimpleNamespace(name="7")),
        ObjectReference(kind="Order", name="7"),
    ],
    ids=["text", "whole text", "keys", "manifest", "manifest with None", "attributes", "reference"],
)
def test_an_object_without_a_namespace_is_in_default_however_it_is_written(obj: object) -> None:
    assert reference_to(obj) == ObjectReference("Order", "default", "7")


@pytest.mark.parametrize(
    "obj",
    ["Order/7", {"kind": "Order", "name": "7"}, ObjectReference(kind="Order", name="7"), "shop/Order/7"],
)
def test_a_namespace_that_goes_with_the_object_is_taken_where_it_has_none(obj: object) -> None:
    assert reference_to(obj, "shop") == reference_to("shop/Order/7", "audit") == ObjectReference("Order", "shop", "7")


@pytest.mark.parametrize(
    "obj",
    [
        "Node/n1",
        "no/n1",
        {"kind": "Node", "name": "n1"},
        {"kind": "node", "name": "n1"},
        ObjectReference(kind="Node", name="n1"),
        {"kind": "Rack", "metadata": {"name": "r1", "uid": "3f2c"}},
    ],
)
def test_an_object_of_a_cluster_scoped_kind_or_that_a_server_has_in_no_namespace_stays_in_none(obj: object) -> None:
    assert reference_to(obj).namespace == reference_to(obj, "shop").namespace == ""


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ("pod", "Pod"),
        ("PODS", "PODS"),
        ("POD", "Pod"),
        ("po", "Pod"),
        ("pods", "Pod"),
        ("deployments.apps", "Deployment"),
        ("order", "order"),
        ("Order", "Order"),
        ("No", "No"),
    ],
)
def test_words_of_kubectl_are_spelled_as_its_kinds_and_all_others_as_they_are_written(typed: str, kind: str) -> None:
    assert reference_to(f"{typed}/web").kind == kind


def test_nil_is_refused_in_the_words_of_client_go() -> None:
    with pytest.raises(InvalidEvent, match="can't reference a nil object") as caught:
        reference_to(None)
    assert caught.value.field == "involvedObject"


@pytest.mark.parametrize(
    ("obj", "field", "problem"),
    [
        ("web-0", "object", "'web-0' is not of the form KIND/NAME, like Pod/web-0"),
        ("a/b/c/d", "object", "'a/b/c/d' is not of the form KIND/NAME, like Pod/web-0, or NAMESPACE/KIND/NAME"),
        ("/Pod/", "object", "'/Pod/' is not of the form KIND/NAME"),
        ("My Shop/Pod/web-0", "namespace", "is not a DNS label"),
        (b"x", "involvedObject", "can't reference a bytes"),
        (7, "involvedObject", "can't reference a int"),
        ([MANIFEST], "involvedObject", "can't reference a list"),
        (SimpleNamespace(kind="Pod"), "involvedObject", "can't reference a SimpleNamespace"),
        (Pod(metadata=None), "involvedObject", "has no metadata"),
        ({"kind": "Pod", "metadata": None}, "involvedObject", "has no metadata"),
        ({}, "involvedObject", "empty mapping"),
        ({"kind": "Pod", "nmae": "web-0"}, "involvedObject", "unknown key 'nmae'; a reference has kind, namespace"),
        ({"kind": "Pod", 7: "web-0"}, "involvedObject", "unknown key '7'"),
        ({"kind": "Pod", "name": 7}, "involvedObject.name", "must be a string, is int"),
        ({"kind": "Pod", "apiVersion": b"v1"}, "involvedObject.apiVersion", "must be a string, is bytes"),
        (Pod(kind=object()), "involvedObject.kind", "must be a string, is object"),  # type: ignore[arg-type]
        ({"kind": "Pod", "metadata": {"uid": uuid.uuid4()}}, "involvedObject.uid", "must be a string, is UUID"),
    ],
)
def test_what_names_no_object_is_refused_with_the_reason(obj: object, field: str, problem: str) -> None:
    with pytest.raises(InvalidEvent, match=re.escape(problem)) as caught:
        reference_to(obj)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("pod/web-0", ObjectReference(kind="pod", name="web-0")),
        ("shop/pod/web-0", ObjectReference(kind="pod", name="web-0", namespace="shop")),
        ("Worker/host-1:4711", ObjectReference(kind="Worker", name="host-1:4711")),
        ("deployment.apps/web", ObjectReference(kind="deployment.apps", name="web")),
        ("Job/nightly backup für Zürich", ObjectReference(kind="Job", name="nightly backup für Zürich")),
    ],
)
def test_a_person_names_an_object_as_kind_and_name(text: str, reference: ObjectReference) -> None:
    assert reference_from_text(text) == reference


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not of the form KIND/NAME"),
        ("pod", "is not of the form KIND/NAME"),
        ("pod/", "is not of the form KIND/NAME"),
        ("/web-0", "is not of the form KIND/NAME"),
        ("/", "is not of the form KIND/NAME"),
        ("/pod/web-0", "is not of the form KIND/NAME"),
        ("shop/pod/web/0", "a name with a slash in it is given apart from its kind"),
        ("po d/web-0", "is not a kind"),
        ("p\udcff/web-0", "is not a kind"),
        ("k" * 64 + "/web-0", "is not a kind"),
        ("pod/web\n0", "control characters"),
        ("pod/ web-0", "white space"),
        ("pod/\udcff", "control characters"),
        ("pod/" + "ü" * 127, "more than 253 bytes"),
        ("Default/pod/web-0", "is not a DNS label"),
    ],
)
def test_a_bad_form_is_refused_with_the_good_one(text: str, problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem) as caught:
        reference_from_text(text)
    assert caught.value.exit_code == 2
    assert "involvedObject" not in str(caught.value), "a field that nobody typed"
    str(caught.value).encode()


def test_a_namespace_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="is not a DNS label"):
        reference_to("pod/web-0", "Default")


@pytest.mark.parametrize(
    ("object_name", "time_ns", "name"),
    [
        # Recorded from client-go: 2000-01-01T00:00:00Z and one second later.
        ("web-0", 946684800_000000000, "web-0.d234ccf52430000"),
        ("n1", 946684802_000000000, "n1.d234ccfc9789400"),
        ("a.b", 15, "a.b.f"),
        ("x", 0, "x.0"),
        ("x" * 63, 1, "x" * 63 + ".1"),
    ],
)
def test_an_event_is_named_after_its_object_and_the_time(object_name: str, time_ns: int, name: str) -> None:
    assert event_name(object_name, time_ns) == name


@pytest.mark.parametrize(
    "object_name",
    ["", "Web-0", "web_0", "-web", "web-", "a..b", ".a", "a/b", "web 0", "wéb", "web\n", "\udcff", "x" * 240],
)
def test_a_name_that_is_no_subdomain_becomes_a_random_uuid(object_name: str) -> None:
    names = {event_name(object_name, 1_700_000_000_000_000_000) for _ in range(2)}
    assert len(names) == 2
    assert all(uuid.UUID(name).version == 4 and str(uuid.UUID(name)) == name for name in names)


def test_the_whole_name_has_at_most_253_characters() -> None:
    longest = "a." * 117 + "aa"
    assert event_name(longest, 0x1234567890ABCDEF) == f"{longest}.1234567890abcdef"
    assert uuid.UUID(event_name(longest + "a", 0x1234567890ABCDEF)).version == 4


def test_a_time_before_1970_has_no_hex_that_fits_a_name() -> None:
    assert uuid.UUID(event_name("web-0", -1)).version == 4
