"""Silences and acknowledgements over HTTP: their author, and rights in one namespace."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from eventbus.api.auth.access import Access, Grant, User
from eventbus.api.kube import authors
from eventbus.api.kube.authors import MOST_OF_AUTHOR, Author
from eventbus.api.status import ApiError
from eventbus.model.kinds import ACKNOWLEDGEMENT
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.support.api_worker import ApiWorker, Reply, api_worker

SILENCES = "/apis/eventbus.dev/v1/silences"
ACKNOWLEDGEMENTS = "/apis/eventbus.dev/v1/acknowledgements"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def worker(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiWorker]:
    folder = tmp_path_factory.mktemp("silences")
    (folder / "tokens.csv").write_text("ann-token,ann,1\nsam-token,sam,2\nvic-token,vic,3\neve-token,eve,4\n")
    grants = ("edit=user:ann", "view=user:vic", "edit=user:sam@shop", "view=user:sam@pay", "edit=user:eve@bank")
    options = [word for grant in grants for word in ("--grant", grant)]
    prefix = f"t{secrets.token_hex(6)}"
    with api_worker(embedded_url, prefix, folder, "--token-file", str(folder / "tokens.csv"), *options) as found:
        yield found


def call(worker: ApiWorker, user: str, method: str, path: str, body: Any = None) -> Reply:
    kind = MERGE if method == "PATCH" else "application/json"
    return worker.call(method, path, body, Authorization=f"Bearer {user}-token", Content_Type=kind)


def silence(**matchers: str) -> dict[str, Any]:
    return {
        "spec": {
            "matchers": [{"name": name, "value": value} for name, value in matchers.items()],
            "startsAt": "2026-11-26T00:00:00Z",
            "endsAt": "2096-11-26T00:00:00Z",
            "createdBy": "mallory",
            "comment": "upgrade",
        }
    }


def acknowledgement(namespace: str) -> dict[str, Any]:
    return {"spec": {"object": {"kind": "Pod", "namespace": namespace, "name": "web-0"}, "createdBy": "mallory"}}


def made(worker: ApiWorker, user: str, path: str, body: Any) -> dict[str, Any]:
    answer = call(worker, user, "POST", path, body)
    assert answer.status == 201, answer.data
    found: dict[str, Any] = answer.json
    return found


def test_the_server_names_a_silence_and_sets_its_author_also_if_another_user_changes_it(worker: ApiWorker) -> None:
    found = made(worker, "sam", SILENCES, silence(namespace="shop"))
    assert found["metadata"]["name"] == found["metadata"]["uid"]
    assert found["spec"]["createdBy"] == "sam"
    path = f"{SILENCES}/{found['metadata']['name']}"
    patch = {"spec": {"createdBy": "mallory", "endsAt": "2097-01-01T00:00:00Z"}}
    changed = call(worker, "ann", "PATCH", path, patch).json
    assert (changed["spec"]["createdBy"], changed["spec"]["endsAt"]) == ("sam", "2097-01-01T00:00:00Z")
    changed["spec"] |= {"createdBy": "mallory", "comment": "longer"}
    updated = call(worker, "ann", "PUT", path, changed).json
    assert (updated["spec"]["createdBy"], updated["spec"]["comment"]) == ("sam", "longer")


def test_an_author_of_one_namespace_has_a_bounded_number_of_silences_that_have_not_ended(worker: ApiWorker) -> None:
    alertmanager = "/alertmanager/api/v2/silences"
    body = silence(namespace="bank")
    names = [made(worker, "eve", SILENCES, body)["metadata"]["name"] for _ in range(MOST_OF_AUTHOR)]
    posted = body["spec"] | {"matchers": [{"name": "namespace", "value": "bank", "isRegex": False}]}
    for path, sent in ((SILENCES, body), (alertmanager, posted)):
        answer = call(worker, "eve", "POST", path, sent)
        assert answer.status == 409
        assert f'"eve" has {MOST_OF_AUTHOR} silences that have not ended' in answer.json["message"]
    made(worker, "ann", SILENCES, body)
    path = f"{SILENCES}/{names[0]}"
    longer = {"spec": {"endsAt": "2097-01-01T00:00:00Z"}}
    assert call(worker, "eve", "PATCH", path, longer).status == 200
    assert call(worker, "eve", "DELETE", f"{alertmanager[:-1]}/{names[0]}").status == 200
    made(worker, "eve", SILENCES, body)
    assert call(worker, "eve", "PATCH", path, longer).status == 409


def test_an_author_of_one_namespace_has_a_bounded_number_of_stored_ones(
    embedded_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authors, "MOST_STORED_OF_AUTHOR", 1)
    access = Access((Grant.parse("edit=user:sam@shop"), Grant.parse("edit=user:ann")))
    sam, ann = Author(User("sam"), access), Author(User("ann"), access)
    with ObjectStore.open(embedded_url, settings=Settings(prefix=prefix)) as store:
        context: Any = store  # it has the same `objects`
        new = ACKNOWLEDGEMENT.decode({"spec": acknowledgement("shop")["spec"] | {"createdBy": "sam"}})
        sam.check_count(context, ACKNOWLEDGEMENT, new)
        stored = store.objects(ACKNOWLEDGEMENT).create(new)
        with pytest.raises(ApiError, match="may have no more"):
            sam.check_count(context, ACKNOWLEDGEMENT, new)
        sam.check_count(context, ACKNOWLEDGEMENT, stored, stored)
        ann.check_count(context, ACKNOWLEDGEMENT, new)


def test_matchers_and_objects_cannot_be_changed(worker: ApiWorker) -> None:
    for path, body, field, value in (
        (SILENCES, silence(namespace="shop"), "matchers", [{"name": "kind", "value": "Pod"}]),
        (ACKNOWLEDGEMENTS, acknowledgement("shop"), "object", {"name": "web-1"}),
    ):
        name = made(worker, "ann", path, body)["metadata"]["name"]
        answer = call(worker, "ann", "PATCH", f"{path}/{name}", {"spec": {field: value}})
        assert answer.status == 422
        assert f"spec.{field}: Forbidden: field is immutable: create another object" in answer.json["message"]


def test_an_invalid_silence_is_rejected_with_all_causes(worker: ApiWorker) -> None:
    body = silence(namespce="shop", reason="x")
    body["spec"] |= {"endsAt": "2026-01-01T00:00:00Z"}
    body["spec"]["matchers"][1] |= {"isRegex": True, "value": "("}
    answer = call(worker, "ann", "POST", SILENCES, body)
    assert answer.status == 422
    fields = [cause["field"] for cause in answer.json["details"]["causes"]]
    assert fields == ["spec.matchers[0].name", "spec.matchers[1].value", "spec.endsAt"]


@pytest.mark.parametrize(
    "matchers", [{"namespace": "pay"}, {"kind": "Pod"}, {"namespace": "other", "reason": "BackOff"}], ids=str
)
def test_a_user_of_one_namespace_silences_nothing_outside_it(worker: ApiWorker, matchers: dict[str, str]) -> None:
    answer = call(worker, "sam", "POST", SILENCES, silence(**matchers))
    assert answer.status == 403
    assert answer.json["message"].endswith(
        'User "sam" cannot create resource "silences" at the cluster scope: add a matcher namespace="…"'
    )
    for field in ({"isRegex": True}, {"isEqual": False}):
        body = silence(namespace="shop")
        body["spec"]["matchers"][0] |= field
        assert call(worker, "sam", "POST", SILENCES, body).status == 403


def test_a_user_of_one_namespace_changes_and_deletes_only_silences_of_it(worker: ApiWorker) -> None:
    longer = {"spec": {"endsAt": "2097-01-01T00:00:00Z"}}
    for matchers, status in (({"namespace": "shop"}, 200), ({"namespace": "pay"}, 403), ({"kind": "Pod"}, 403)):
        found = made(worker, "ann", SILENCES, silence(**matchers))
        path = f"{SILENCES}/{found['metadata']['name']}"
        assert call(worker, "sam", "PATCH", path, longer).status == status
        found["spec"]["comment"] = "mine"
        del found["metadata"]["resourceVersion"]
        assert call(worker, "sam", "PUT", path, found).status == status
        assert call(worker, "sam", "DELETE", path).status == status
    narrowed = {"spec": {"matchers": [{"name": "namespace", "value": "shop"}]}}
    assert call(worker, "sam", "PATCH", path, narrowed).status == 403
    assert call(worker, "sam", "DELETE", SILENCES).status == 403
    assert call(worker, "sam", "POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}).status == 403


def test_an_acknowledgement_of_a_user_of_one_namespace_is_limited_to_it(worker: ApiWorker) -> None:
    wide = made(worker, "ann", ACKNOWLEDGEMENTS, acknowledgement("shop"))["spec"]
    assert (wide["createdBy"], wide["sameNamespace"]) == ("ann", False)
    found = made(worker, "sam", ACKNOWLEDGEMENTS, acknowledgement("shop"))
    assert (found["spec"]["createdBy"], found["spec"]["sameNamespace"]) == ("sam", True)
    path = f"{ACKNOWLEDGEMENTS}/{found['metadata']['name']}"
    assert call(worker, "sam", "PATCH", path, {"spec": {"sameNamespace": False, "comment": "x"}}).status == 200
    assert call(worker, "ann", "GET", path).json["spec"] == found["spec"] | {"comment": "x"}
    for namespace in ("pay", ""):
        assert call(worker, "sam", "POST", ACKNOWLEDGEMENTS, acknowledgement(namespace)).status == 403
    assert call(worker, "sam", "DELETE", path).status == 200


def test_a_user_who_may_only_read_writes_none(worker: ApiWorker) -> None:
    for path, body in ((SILENCES, silence(namespace="shop")), (ACKNOWLEDGEMENTS, acknowledgement("shop"))):
        assert call(worker, "vic", "POST", path, body).status == 403
        assert call(worker, "vic", "GET", path).status == 200


def test_a_user_of_one_namespace_reads_what_is_restricted_to_it(worker: ApiWorker) -> None:
    for path, bodies in (
        (SILENCES, [silence(namespace=namespace) for namespace in ("shop", "pay", "other")] + [silence(kind="Pod")]),
        (ACKNOWLEDGEMENTS, [acknowledgement(namespace) for namespace in ("shop", "pay", "other", "")]),
    ):
        names = [made(worker, "ann", path, body)["metadata"]["name"] for body in bodies]
        listed = {found["metadata"]["name"] for found in call(worker, "sam", "GET", path).json["items"]}
        assert listed.intersection(names) == set(names[:2])
        assert [call(worker, "sam", "GET", f"{path}/{name}").status for name in names] == [200, 200, 403, 403]
        assert call(worker, "sam", "GET", f"{path}?watch=1").status == 403
        assert len(call(worker, "vic", "GET", path).json["items"]) > len(listed)
