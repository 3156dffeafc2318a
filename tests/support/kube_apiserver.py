"""A real kube-apiserver with its etcd, where `make test-go` has compiled it."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from tests.support.certificates import make_certificate
from tests.support.import_survival import NAMESPACE, Found, Source
from tests.support.kubeconfig import TOKEN
from tests.support.ports import free_port
from tests.waiting import eventually

ADMIN_TOKEN = "admin-token"
#: The user with TOKEN.
USER = "importer"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"


class KubeApiserver:
    """Both servers. `stop` kills them, and `start` starts them again with their data and ports.

    Args: folder: has the programs kube-apiserver and etcd.  home: for data, keys and logs.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._home = home
        self._etcd_port, self._peer_port, self.port = free_port(), free_port(), free_port()
        self.authority, _ = make_certificate(home, "IP:127.0.0.1,DNS:localhost")
        self._processes: list[subprocess.Popen[bytes]] = []
        (home / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,1,system:masters\n{TOKEN},{USER},2\n")
        self._client = httpx2.Client(
            base_url=f"https://127.0.0.1:{self.port}",
            verify=ssl.create_default_context(cafile=self.authority),
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
            timeout=60,
        )

    def start(self) -> None:
        etcd = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._run(
            "etcd",
            f"--data-dir={self._home / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        key, certificate = self._home / "key.pem", self.authority
        self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--etcd-compaction-interval=0",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--token-auth-file={self._home / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://localhost",
            f"--service-account-key-file={certificate}",
            f"--service-account-signing-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",
        )
        eventually(lambda: self._has("/readyz"), despite=httpx2.HTTPError)
        eventually(lambda: self._has(f"/api/v1/namespaces/{NAMESPACE}"))  # made a moment later

    def stop(self) -> None:
        """Kill both, as a machine does that loses its power."""
        for process in reversed(self._processes):
            process.kill()
            process.wait(30)
        self._processes.clear()

    def close(self) -> None:
        self._client.close()
        self.stop()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Call it as administrator. Returns: the decoded answer. Raises: HTTPStatusError."""
        content = None if body is None else json.dumps(body)
        answer = self._client.request(
            method, path, content=content, headers={"Content-Type": "application/json"} | headers
        )
        answer.raise_for_status()
        return answer.json()

    def compact(self) -> None:
        """Drop the history of etcd, as kube-apiserver does every five minutes."""
        self._etcd("kv/compaction", {"revision": self._etcd("kv/range", {"key": "AA=="})["header"]["revision"]})

    def _has(self, path: str) -> bool:
        return self._client.get(path).status_code == 200

    def _etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        url = f"http://127.0.0.1:{self._etcd_port}/v3/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), timeout=60) as answer:
            return json.loads(answer.read())

    def write_config(self, path: Path, port: int = 0, token: str = TOKEN) -> Path:
        """Write a kubeconfig for USER, who reaches the server at *port*. Returns: *path*."""
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        server = f"https://127.0.0.1:{port or self.port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_bytes(msgspec.json.encode(config))  # JSON is YAML
        return path

    def _run(self, name: str, *words: str) -> None:
        with (self._home / f"{name}.log").open("ab") as output:
            process = subprocess.Popen([self._folder / name, *words], stdout=output, stderr=output, cwd=self._home)
        self._processes.append(process)


def kube_as_source(server: KubeApiserver) -> Source:
    """Make the source of `survive` of a running server: its events are created, and updated with a higher count."""
    counts: Counter[int] = Counter()

    def write(number: int) -> None:
        counts[number] += 1
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "metadata": {"name": f"pod-{number}", "namespace": NAMESPACE},
            "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": f"pod-{number}"},
            "type": "Normal",
            "reason": "Tested",
            "message": "hello",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": counts[number],
        }
        if counts[number] == 1:
            server.call("POST", EVENTS, event)
        else:
            server.call("PUT", f"{EVENTS}/pod-{number}", event)

    def record(numbers: Sequence[int]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, numbers))

    def held() -> Found:
        found = server.call("GET", EVENTS)["items"]
        return {event["metadata"]["name"]: (event["metadata"]["uid"], event["count"]) for event in found}

    return Source(
        port=server.port, record=record, held=held, stop=server.stop, start=server.start, forget=server.compact
    )


@contextmanager
def running(folder: Path, home: Path) -> Iterator[KubeApiserver]:
    server = KubeApiserver(folder, home)
    try:
        server.start()
        yield server
    finally:
        server.close()


__all__ = ["EVENTS", "USER", "KubeApiserver", "kube_as_source", "running"]
