"""Replays recorded HTTP scenarios against an API worker, and says where its answers differ from the API server's.

A scenario is a file of steps with the recorded `answer`; a step WATCH makes the calls under `during` while it watches;
PAGES follows `continue` with `limit` = body; `raw` compares text. Hard is every difference but the texts of messages
and descriptions, ages, and empty fields.
"""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.api_worker import ApiWorker
from tests.waiting import PATIENCE_S

VECTORS = Path(__file__).parents[1] / "vectors"
EVENTS = "/api/v1/namespaces/default/events"
_KEPT_UIDS = ("u1", "u2", "node-1", "mine", "other", "web-0")
_DROPPED = [
    "managedFields",
    "selfLink",
    "storageVersionHash",
    "singularName",
    "taints",
    "daemonEndpoints",
    "finalizers",
]  # what a real server adds
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_AGE = re.compile(r"(\d+[smhdy])+|<unknown>")
_GENERATED = re.compile(r"web-0\.[a-z0-9]{5}")


def replay(worker: ApiWorker, file: Path) -> list[str]:
    """What differs."""
    _empty(worker)
    differences: list[str] = []
    for number, step in enumerate(json.loads(file.read_text())["steps"], 1):
        where = f"step {number} {step['method']} {step['path']}"
        got, wanted = _answers(worker, step, where, differences)
        _compare(wanted, got, where, differences)
    return differences


def _empty(worker: ApiWorker) -> None:
    """Delete what the scenario before has left."""
    for kind in ("/api/v1/events", "/apis/coordination.k8s.io/v1/leases", "/api/v1/nodes"):
        group, _, plural = kind.rpartition("/")
        for metadata in [each["metadata"] for each in worker.call("GET", kind).json["items"]]:
            namespace = metadata.get("namespace")
            path = f"{group}/namespaces/{namespace}/{plural}" if namespace else kind
            path = f"{path}/{quote(metadata['name'], safe='')}"
            worker.call("DELETE", path)
            if metadata.get("finalizers"):
                free = {"metadata": {"finalizers": None}}
                worker.call("PATCH", path, free, Content_Type="application/merge-patch+json")


def _answers(worker: ApiWorker, step: dict[str, Any], where: str, differences: list[str]) -> tuple[Any, Any]:
    """What is answered and what was recorded, tidied."""
    wanted = _tidy(step["answer"])
    path = step["path"]
    if "{rv}" in path:
        path = path.replace("{rv}", worker.call("GET", EVENTS).json["metadata"]["resourceVersion"])
    if step["method"] == "PAGES":
        got: Any = _pages(worker, path, step)
    elif step["method"] == "WATCH":
        got = _watched(worker, path, step, where, differences)
    elif step.get("raw"):
        got = _called(worker, "GET", path, step, raw=True)
        if wanted["body"].startswith("{"):
            got["body"], wanted["body"] = (_tidy(json.loads(one["body"])) for one in (got, wanted))
    else:
        got = _tidy(_called(worker, step["method"], path, step))
    return got, wanted


def _called(worker: ApiWorker, method: str, path: str, step: dict[str, Any], raw: bool = False) -> dict[str, Any]:
    body = step.get("body")
    headers = {name.replace("-", "_"): value for name, value in step["headers"].items()}
    headers.setdefault("Accept", "application/json")
    if body is not None:
        headers.setdefault("Content_Type", "application/json")
    answer = worker.call(method, path, body.encode() if isinstance(body, str) else body, **headers)
    text: Any = answer.data.decode()
    if not raw and text.startswith("{"):
        text = json.loads(text)
    media_type = answer.headers.get("Content-Type", "")
    return {"status": answer.status, "content_type": media_type, "body": text}


def _pages(worker: ApiWorker, path: str, step: dict[str, Any]) -> list[Any]:
    found, more = [], ""
    while True:
        page = _called(worker, "GET", f"{path}?limit={step['body']}{more}", {"headers": step["headers"]})
        found.append(_tidy(page))
        token = page["body"]["metadata"].get("continue", "")
        if not token:
            return found
        more = f"&continue={quote(token)}"


def _watched(worker: ApiWorker, path: str, step: dict[str, Any], where: str, differences: list[str]) -> dict[str, Any]:
    frames: list[Any] = []
    wanted = len(step["answer"].get("frames", []))
    enough = threading.Event()
    headers = {name.replace("-", "_"): value for name, value in step["headers"].items()}
    with worker.watch(path, **headers) as told:

        def read() -> None:
            for frame in told:
                frames.append(_tidy(frame))
                if len(frames) == wanted:
                    break
            enough.set()

        reader = threading.Thread(target=read)
        reader.start()
        for inner in step["during"]:
            status = _called(worker, inner["method"], inner["path"], inner)["status"]
            if status != inner["status"]:
                differences.append(f"{where}, {inner['method']} {inner['path']}: {status}, not {inner['status']}")
        enough.wait(PATIENCE_S)
        reader.join()
    return {"status": 200, "content_type": "application/json", "frames": frames}


def _tidy(value: Any, key: str = "") -> Any:
    """Values that differ from run to run become words."""
    if isinstance(value, dict):
        return {
            name: _tidy(inner, name)
            for name, inner in value.items()
            if name not in _DROPPED and not (name == "nodeInfo" and not any(inner.values()))
        }
    if isinstance(value, list):
        return [_tidy(inner) for inner in value]
    if key == "uid" and value not in _KEPT_UIDS:
        return "<uid>"
    if key == "resourceVersion" and value and (value == "<rv>" or str(value).isdigit()):
        return "<rv>"
    if key in ("creationTimestamp", "deletionTimestamp") and value:
        return "<time>"
    if key == "continue" and value:
        return "<continue>"
    if key == "name" and isinstance(value, str) and _GENERATED.fullmatch(value):
        return "web-0.<5>"
    return _UUID.sub("<uid>", value) if isinstance(value, str) else value


def _compare(wanted: Any, got: Any, path: str, differences: list[str]) -> None:
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in sorted(wanted.keys() | got.keys()):
            if key in wanted and key in got:
                _compare(wanted[key], got[key], f"{path}.{key}", differences)
            elif (left := wanted.get(key, got.get(key))) not in (None, "", {}, []):
                differences.append(f"{path}.{key}: {'recorded' if key in wanted else 'not recorded'}: {left!r}")
    elif isinstance(wanted, list) and isinstance(got, list):
        if len(wanted) != len(got):
            differences.append(f"{path}: {len(got)} items, recorded {len(wanted)}")
        for number, pair in enumerate(zip(wanted, got, strict=False)):
            _compare(*pair, f"{path}[{number}]", differences)
    elif wanted != got and not _soft(wanted, got, path):
        differences.append(f"{path}: {got!r}, recorded {wanted!r}")


def _soft(wanted: Any, got: Any, path: str) -> bool:
    if path.endswith((".message", ".description")):
        return True
    if path.endswith(".content_type"):
        return str(wanted).partition(";")[0] == str(got).partition(";")[0]
    return ".cells" in path and bool(_AGE.fullmatch(str(wanted)) and _AGE.fullmatch(str(got)))


__all__ = ["EVENTS", "VECTORS", "replay"]
