"""What a client asks about itself, about tokens and about what is served; and what it does to many objects at once."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker

RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ABOUT = {"kind": "Pod", "namespace": "default", "name": "web-0"}


def as_user(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_the_rules_of_a_user_are_those_of_its_role(users_worker: ApiWorker) -> None:
    def verbs(token: str) -> set[str]:
        reply = users_worker.call("POST", RULES, {"spec": {"namespace": "default"}}, **as_user(token))
        assert reply.status == 201, reply.data
        return {
            verb
            for rule in reply.json["status"]["resourceRules"]
            if {"events", "*"} & set(rule["resources"])
            for verb in rule["verbs"]
        }

    assert verbs("reader-token") == {"get", "list", "watch"}
    assert verbs("admin-token") & {"*", "delete"}
    assert verbs("nobody-token") == set()


def test_a_token_is_reviewed_for_admins_alone(users_worker: ApiWorker) -> None:
    def review(token: str, asker: str) -> tuple[int, Any]:
        reply = users_worker.call("POST", TOKENS, {"spec": {"token": token}}, **as_user(asker))
        return reply.status, reply.json.get("status")

    code, said = review("reader-token", "admin-token")
    assert (code, said["authenticated"]) == (201, True)
    assert (said["user"]["username"], said["user"]["uid"]) == ("reader", "2")
    code, said = review("no such token", "admin-token")
    assert (code, said.get("authenticated", False)) == (201, False)
    assert review("reader-token", "reader-token")[0] == 403


def test_discovery_is_aggregated_for_those_alone_who_ask_for_it(local_worker: ApiWorker) -> None:
    plain = local_worker.call("GET", "/apis", Accept="application/json")
    assert plain.json["kind"] == "APIGroupList"
    for version in ("v2", "v2beta1"):
        asked = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        reply = local_worker.call("GET", "/apis", Accept=f"{asked},application/json")
        if version == "v2":
            assert reply.json["kind"] == "APIGroupDiscoveryList"
            assert f"v={version}" in reply.headers["Content-Type"]
        else:  # as kubectl 1.28 sends it, which takes the plain form as well
            assert reply.json["kind"] == "APIGroupList"


def test_a_large_list_is_compressed_for_who_asks(local_worker: ApiWorker) -> None:
    for number in range(20):
        body = {"metadata": {"name": f"large{number}"}, "involvedObject": ABOUT, "message": "m" * 8_000}
        assert local_worker.call("POST", EVENTS, body).status == 201
    plain = local_worker.call("GET", EVENTS)
    packed = local_worker.call("GET", EVENTS, Accept_Encoding="gzip")
    assert ("Content-Encoding" in plain.headers, packed.headers["Content-Encoding"]) == (False, "gzip")
    assert json.loads(gzip.decompress(packed.data))["items"] == plain.json["items"]
    assert len(packed.data) < len(plain.data) / 4


def test_a_collection_is_deleted_as_far_as_it_is_selected(local_worker: ApiWorker) -> None:
    many = "/api/v1/namespaces/many/events"
    for name, labels in (("keep", {}), ("go1", {"old": "yes"}), ("go2", {"old": "yes"})):
        metadata = {"name": name, "labels": labels}
        made = local_worker.call("POST", many, {"metadata": metadata, "involvedObject": ABOUT | {"namespace": "many"}})
        assert made.status == 201, made.data
    gone = local_worker.call("DELETE", f"{many}?labelSelector=old%3Dyes")
    assert gone.status == 200, gone.data
    assert sorted(item["metadata"]["name"] for item in gone.json["items"]) == ["go1", "go2"]
    left = local_worker.call("GET", many).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["keep"]


def test_each_document_of_discovery_is_read_in_both_its_ways_and_no_other(local_worker: ApiWorker) -> None:
    kinds = {
        "/api": "APIVersions",
        "/apis": "APIGroupList",
        "/api/v1": "APIResourceList",
        "/apis/events.k8s.io": "APIGroup",
    }
    for path, kind in (kinds | {"/apis/events.k8s.io/v1": "APIResourceList"}).items():
        for way in (path, f"{path}/"):
            reply = local_worker.call("GET", way, Accept="application/json")
            assert (reply.status, reply.json["kind"]) == (200, kind), way
    for path in ("/version", "/api", "/apis", "/api/v1"):
        assert local_worker.call("POST", path, {}).status == 405, path
    assert local_worker.call("POST", "/api/v2", {}).status in (404, 405)


def test_the_version_is_one_that_kubectl_can_read(local_worker: ApiWorker) -> None:
    version = local_worker.call("GET", "/version").json["gitVersion"]
    assert re.fullmatch(r"v1\.\d+\.0\+eventbus-[0-9A-Za-z.-]+", version), version  # semver: one plus
