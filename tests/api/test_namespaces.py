"""Namespaces in pages: those that were made and those in use, by name."""

from __future__ import annotations

from tests.support.api_worker import ApiWorker

NAMESPACES = "/api/v1/namespaces"


def in_use(worker: ApiWorker, namespace: str) -> None:
    about = {"kind": "Pod", "namespace": namespace, "name": "web-0"}
    made = worker.call("POST", f"{NAMESPACES}/{namespace}/events", {"metadata": {"name": "e"}, "involvedObject": about})
    assert made.status == 201, made.data


def test_they_come_in_pages_and_none_is_left_out(local_worker: ApiWorker) -> None:
    for name in ("pages-b", "pages-d"):
        in_use(local_worker, name)
    for name in ("pages-a", "pages-c"):
        assert local_worker.call("POST", NAMESPACES, {"metadata": {"name": name}}).status == 201
    whole = local_worker.call("GET", NAMESPACES).json
    every = [item["metadata"]["name"] for item in whole["items"]]
    assert {"default", "pages-a", "pages-b", "pages-c", "pages-d"} <= set(every)

    found: list[str] = []
    pages, more = 0, ""
    while pages == 0 or more:
        page = local_worker.call("GET", f"{NAMESPACES}?limit=2&continue={more}").json
        names = [item["metadata"]["name"] for item in page["items"]]
        more = page["metadata"].get("continue", "")
        assert len(names) == 2 or not more
        found, pages = found + names, pages + 1
        assert page["metadata"].get("remainingItemCount", 0) == len(every) - len(found)
        assert page["metadata"]["resourceVersion"] == whole["metadata"]["resourceVersion"]
    assert found == every
    selected = local_worker.call("GET", f"{NAMESPACES}?limit=1&fieldSelector=metadata.name!%3Ddefault").json
    assert (len(selected["items"]), "remainingItemCount" in selected["metadata"]) == (1, False)


def test_one_begins_active_and_a_delete_answers_it_as_it_ends(local_worker: ApiWorker) -> None:
    wanted = {"metadata": {"name": "ending"}, "spec": {"finalizers": ["a.io/b"]}, "status": {"phase": "Terminating"}}
    made = local_worker.call("POST", NAMESPACES, wanted).json
    assert (made["spec"], made["status"]) == ({"finalizers": ["a.io/b", "kubernetes"]}, {"phase": "Active"})
    kept = local_worker.call("PUT", f"{NAMESPACES}/ending", {"metadata": {"name": "ending"}, "spec": {}}).json
    assert (kept["spec"], kept["metadata"]["uid"]) == (made["spec"], made["metadata"]["uid"])
    gone = local_worker.call("DELETE", f"{NAMESPACES}/ending")
    assert (gone.status, gone.json["status"]) == (200, {"phase": "Terminating"})
    assert gone.json["metadata"]["uid"] == made["metadata"]["uid"]
    assert gone.json["metadata"]["deletionTimestamp"]
    assert local_worker.call("GET", f"{NAMESPACES}/ending").status == 404


def test_those_of_the_api_server_itself_stay(local_worker: ApiWorker) -> None:
    refused = local_worker.call("DELETE", f"{NAMESPACES}/default")
    assert (refused.status, refused.json["message"], refused.json["details"]) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
        {"name": "default", "kind": "namespaces"},
    )
