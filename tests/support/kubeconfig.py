"""A kubeconfig for the API servers of tests, with the token that they want."""

from __future__ import annotations

from pathlib import Path

import msgspec

TOKEN = "s3cret-token"


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write one for the server at *url*; its context `stranger` has another token. Returns: *path*."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}, {"name": "wrong", "user": {"token": "x"}}],
        "contexts": [
            {"name": "test", "context": {"cluster": "c", "user": "u"}},
            {"name": "stranger", "context": {"cluster": "c", "user": "wrong"}},
        ],
    }
    path.write_bytes(msgspec.json.encode(config))  # JSON is YAML
    return path
