"""Kinds as people who know kubectl type them."""

from __future__ import annotations

import pytest

from eventbus.cli.input.lookup import object_from_words
from eventbus.errors import InvalidEvent
from eventbus.model.event import ObjectReference
from eventbus.model.reference import meant_kinds


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ("Pod", "pod"),
        ("pods", "pod"),
        ("po", "pod"),
        ("deployments.apps", "deployment"),
        ("deploy", "deployment"),
        ("sts", "statefulset"),
        ("networkpolicies", "networkpolicy"),
        ("ingresses", "ingress"),
        ("storageclasses", "storageclass"),
        ("Backup", "backup"),
        ("Proxies", "proxy"),
    ],
)
def test_what_is_typed_means_the_kind(typed: str, kind: str) -> None:
    assert kind in set(meant_kinds(typed))


def test_the_kind_as_typed_comes_first() -> None:
    assert next(meant_kinds("Status")) == "status"


@pytest.mark.parametrize("words", [("pod/web-0",), ("pod", "web-0")])
def test_both_forms_of_kubectl_name_the_object(words: tuple[str, ...]) -> None:
    found = object_from_words(words)
    assert (found.kind, found.name) == ("pod", "web-0")


def test_a_namespace_may_stand_before_the_kind() -> None:
    assert object_from_words(("shop/order/7",)) == ObjectReference("order", "shop", "7")


def test_a_name_apart_from_its_kind_may_have_a_slash() -> None:
    assert object_from_words(("image", "shop/web")) == ObjectReference("image", "", "shop/web")


@pytest.mark.parametrize("words", [("web-0",), ("pod", "web-0", "web-1"), ("pod/", "web-0"), ("pod/web-0", "x")])
def test_anything_else_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidEvent):
        object_from_words(words)
