"""`eventbus kubeconfig`: configures kubectl and other Kubernetes clients for the API of this bus."""

from __future__ import annotations

import base64
import csv
import os
from pathlib import Path
from typing import Any

import click

from eventbus.errors import ConfigError

DEFAULT_SERVER = "http://127.0.0.1:6480"
NAME = "eventbus"
#: The lists of a kubeconfig.
PARTS = ("clusters", "users", "contexts")


@click.command()
@click.option("--server", default=DEFAULT_SERVER, show_default=True, help="Address of `eventbus worker api`.")
@click.option(
    "--ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The CA of an https server.  [default: the one that --tls has created in the state directory, if any]",
)
@click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE", help="Token file of the API worker; needs --user."
)
@click.option("--user", default="", help="User of --token-file with the token to use.")
@click.option("--name", default=NAME, show_default=True, help="Name of cluster, user and context.")
@click.option("-n", "--namespace", default="", help="The context's namespace.")
@click.option("--merge", is_flag=True, help="Merge it into $KUBECONFIG, or ~/.kube/config.")
@click.option("--use", is_flag=True, help="With --merge: make it the current context.")
def kubeconfig(
    server: str,
    ca: Path | None,
    token_file: Path | None,
    user: str,
    name: str,
    namespace: str,
    merge: bool,
    use: bool,
) -> None:
    """Print a kubeconfig for the API of this bus, or merge it into your own.

    kubectl sends no token over http: a server with users needs https.

    \b
    Examples:
      eventbus kubeconfig > bus.yaml && kubectl --kubeconfig bus.yaml get events
      eventbus kubeconfig --merge && kubectl --context eventbus get events -w
      eventbus kubeconfig --server https://bus:6443 --token-file tokens.csv --user admin --merge --use
    """
    from eventbus.util.yaml import dump_yaml

    if use and not merge:
        raise click.UsageError("--use changes your kubeconfig: give --merge as well")
    entries = make_config(server, _authority(server, ca), _token(token_file, user), name, namespace)
    if not merge:
        click.echo(dump_yaml(entries), nl=False)
        return
    path = _kubeconfig_path()
    merged = merge_config(_read(path), entries, use=use)
    write_config(path, dump_yaml(merged))
    click.echo(f"context {name} is in {path}" + ("" if use else f"; use it with: kubectl --context {name}"))


def make_config(server: str, ca: bytes | None, token: str, name: str, namespace: str) -> dict[str, Any]:
    """Make a complete kubeconfig. *ca*: PEM."""
    cluster: dict[str, Any] = {"server": server}
    if ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token} if token else {}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }


def merge_config(current: dict[str, Any], entries: dict[str, Any], *, use: bool) -> dict[str, Any]:
    """Return *current* with *entries*, which replace entries of the same name."""
    merged = {"apiVersion": "v1", "kind": "Config", **current}
    for part in PARTS:
        names = {entry["name"] for entry in entries[part]}
        others = [entry for entry in current.get(part) or [] if entry.get("name") not in names]
        merged[part] = [*others, *entries[part]]
    if use or not merged.get("current-context"):
        merged["current-context"] = entries["current-context"]
    return merged


def _kubeconfig_path() -> Path:
    """The first file of $KUBECONFIG, as kubectl writes to, else ~/.kube/config."""
    first = next(filter(None, os.environ.get("KUBECONFIG", "").split(os.pathsep)), "")
    return Path(first).expanduser() if first else Path.home() / ".kube" / "config"


def _authority(server: str, ca: Path | None) -> bytes | None:
    from eventbus.broker.embedded.server import default_directory

    if not server.startswith("https:"):
        return None
    path = ca or default_directory(os.environ) / "api" / "ca.crt"
    if ca is None and not path.exists():
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--ca {path}: {error.strerror}") from error


def _token(token_file: Path | None, user: str) -> str:
    if token_file is None:
        if user:
            raise click.UsageError("--user names a user of --token-file: give both")
        return ""
    try:
        with token_file.open(encoding="utf-8", newline="") as file:
            tokens = {row[1]: row[0] for row in csv.reader(file) if len(row) > 2}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"--token-file {token_file}: {error}") from error
    if user not in tokens:
        raise ConfigError(f"--token-file {token_file} has no user {user!r}; it has {', '.join(tokens) or 'none'}")
    if tokens[user].startswith("sha256:"):
        raise ConfigError(f"--token-file {token_file} has only a digest of the token of {user}: add the token by hand")
    return tokens[user]


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        config = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from error
    if not config:
        return {}
    if not isinstance(config, dict) or not all(_is_list(config.get(part)) for part in PARTS):
        raise ConfigError(f"{path} is not a kubeconfig: it must be a mapping with lists of {', '.join(PARTS)}")
    return config


def _is_list(entries: Any) -> bool:
    return entries is None or (isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries))


def write_config(path: Path, text: str) -> None:
    """Write the file atomically, readable by this user only, because it has tokens. Raises: ConfigError."""
    path = path.resolve()  # follow a link instead of replacing it
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)  # a part of a token
            raise
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
