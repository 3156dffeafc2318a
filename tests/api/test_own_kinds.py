"""A user's own kind is served in its own group, with everything that the built-in ones have."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.programs import environment, run
from tests.support.api_worker import api_worker

ROBOTS = "/apis/factory.example/v1/namespaces/default/robots"


def test_a_registered_kind_is_discovered_written_listed_and_watched(
    embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    with api_worker(embedded_url, prefix, tmp_path, "--import", "robots_of_tests") as worker:
        groups = [group["name"] for group in worker.call("GET", "/apis").json["groups"]]
        assert "factory.example" in groups
        named = {entry["name"]: entry for entry in worker.call("GET", "/apis/factory.example/v1").json["resources"]}
        assert named["robots"]["shortNames"] == ["rb"]
        assert set(named) == {"robots", "robots/status"}
        schemas = worker.call("GET", "/openapi/v3/apis/factory.example/v1").json["components"]["schemas"]
        assert "arms" in schemas["eventbus.RobotSpec"]["properties"]

        robot = {"metadata": {"name": "r2"}, "spec": {"arms": 1}, "status": {"mood": "ignored"}}
        made = worker.call("POST", ROBOTS, robot).json
        assert (made["kind"], made["metadata"]["generation"]) == ("Robot", 1)
        with worker.watch(f"{ROBOTS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}") as frames:
            patch = {"status": {"mood": "fine"}, "spec": {"arms": 9}}
            merge = "application/merge-patch+json"
            worker.call("PATCH", f"{ROBOTS}/r2/status", patch, Content_Type=merge)
            told = next(frames)["object"]
        assert (told["status"], told["spec"]) == ({"mood": "fine"}, {"arms": 1})
        table = worker.call("GET", ROBOTS, Accept="application/json;as=Table;v=v1;g=meta.k8s.io").json
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Age"]
        wrong = worker.call("POST", ROBOTS, {"metadata": {"name": "r3"}, "spec": {"arms": "many"}})
        assert (wrong.status, wrong.json["reason"]) == (400, "BadRequest")
        assert "default" in [
            item["metadata"]["name"] for item in worker.call("GET", "/api/v1/namespaces").json["items"]
        ]


def test_a_module_that_is_not_there_is_told(embedded_url: str, prefix: str) -> None:
    ran = run("worker", "api", "--import", "no_such_module", env=environment(embedded_url, prefix))
    assert (ran.returncode, "--import no_such_module" in ran.stderr) == (2, True)
