"""eventbus as a user installs it, from its wheel: alone, with each extra alone, and with all of them.

The environments are made without a network, of the packages of the running one: see `tests/support/installed.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus.model.formats import FORMATS
from eventbus.util.extras import EXTRAS
from tests.acceptance.programs import environment
from tests.support.installed import ROOT, Installed, build, install
from tests.support.kubeconfig import write_kubeconfig
from tests.thin import one


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def with_extras(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Installed]:
    made: dict[tuple[str, ...], Installed] = {}

    def make(*extras: str) -> Installed:
        if extras not in made:
            made[extras] = install(wheel, tmp_path_factory.mktemp("-".join(extras) or "none") / "venv", *extras)
        return made[extras]

    return make


@pytest.fixture(scope="module")
def installed(with_extras: Callable[..., Installed]) -> Installed:
    return with_extras()


def test_it_installs_the_package_eventbus_and_nothing_beside_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"eventbus"}
    assert {"eventbus/workers/__init__.py", "eventbus/workers/sink.py"} <= names


@pytest.mark.volume
def test_a_wheel_of_the_source_archive_has_the_same_files(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(tmp_path, "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(build(tmp_path, source=source)) as theirs:
        assert sums(ours) == sums(theirs)


def sums(wheel: zipfile.ZipFile) -> dict[str, int]:
    """Return the checksum of each file, without the list of these sums, whose order differs."""
    return {file.filename: file.CRC for file in wheel.infolist() if not file.filename.endswith("/RECORD")}


@pytest.mark.volume
def test_the_image_is_built_from_the_same_files(wheel: Path, tmp_path: Path) -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) (\S+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    sent = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    source = tmp_path / "source"
    for names, target in copied:
        for name in names.split():
            assert f"!{name}" in sent
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / target, symlinks=True)
            else:
                source.mkdir(exist_ok=True)
                shutil.copy(ROOT / name, source / target)
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(build(tmp_path, source=source)) as theirs:
        assert {*map(without_version, ours.namelist())} - {"eventbus/commit.txt"} == {
            *map(without_version, theirs.namelist())
        }


def without_version(name: str) -> str:
    return re.sub(r"^eventbus-[^/]*\.dist-info/", "dist-info/", name)


@pytest.mark.volume
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no repository of git")
def test_a_shallow_clone_without_tags_can_be_built_and_its_wheel_shows_the_commit(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    words = ["git", "clone", "-q", "--depth", "1", "--no-tags", f"file://{ROOT}", str(clone)]
    subprocess.run(words, check=True, capture_output=True)
    commit = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    ours = install(build(tmp_path, source=clone), tmp_path / "venv")
    shown = subprocess.run([ours.eventbus, "version", "-o", "json"], check=True, capture_output=True, text=True, env={})
    client = json.loads(shown.stdout)["clientVersion"]
    assert client["gitCommit"] == commit.stdout.strip()
    assert re.fullmatch(rf"v0\.\d+\.\d+\.dev1\+g{client['gitCommit'][:7]}[0-9a-f]*", client["gitVersion"])
    assert client["formats"] == [*FORMATS]


@pytest.mark.parametrize("kind", one(["package", "folder", "module"]))
@pytest.mark.parametrize("on", one(["path", "working directory"]))
def test_workers_of_the_user_and_ours_do_not_meet(installed: Installed, kind: str, on: str, tmp_path: Path) -> None:
    if kind == "module":
        (tmp_path / "workers.py").write_text("mine = 'the user'")
        name = "from workers import mine"
    else:
        (tmp_path / "workers").mkdir()
        (tmp_path / "workers" / "mine.py").write_text("mine = 'the user'")
        name = "from workers.mine import mine"
    if kind == "package":
        (tmp_path / "workers" / "__init__.py").touch()
    folder = tmp_path if on == "working directory" else installed.folder
    env = {"PYTHONPATH": str(tmp_path)} if on == "path" else {}

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=50, check=False)

    theirs = run(installed.python, "-c", f"import eventbus.workers.cli; {name}; print(mine)")
    assert (theirs.returncode, theirs.stdout, theirs.stderr) == (0, "the user\n", "")
    for program in ([installed.eventbus], [installed.python, "-m", "eventbus"]):
        ours = run(*program, "worker", "sink", "--help")
        assert (ours.returncode, ours.stderr) == (0, "")
        assert "Usage: eventbus worker sink" in ours.stdout


# -- extras ----------------------------------------------------------------------------------------------------------

#: Package or module → the extras with which it can be imported; the first that fits.
NEED = {
    "eventbus.api.auth.oidc": ("oidc",),
    "eventbus.api.eventbus_v1.log_records": ("api with otlp",),
    "eventbus.api": ("api", "oidc"),
    "eventbus.workers.api_server": ("api", "oidc"),
    "eventbus.agent": ("agent",),
    "eventbus.imports": ("kubernetes",),
    "eventbus.mcp": ("mcp",),
    "eventbus.workers.bus_metrics": ("metrics",),
    "eventbus.export.sinks.clickhouse": ("otlp", "webhook"),
    "eventbus.export.sinks.elasticsearch": ("otlp", "webhook"),
    "eventbus.export.sinks.http_batch": ("otlp", "webhook"),
    "eventbus.export.sinks.kafka": ("kafka",),
    "eventbus.export.sinks.kubernetes": ("kubernetes",),
    "eventbus.export.sinks.otlp": ("otlp",),
    "eventbus.export.sinks.s3": ("s3",),
    "eventbus.export.sinks.splunk": ("otlp", "webhook"),
    "eventbus.model.encoding.otlp": ("otlp",),
    "eventbus.util.http.guarded_http": ("agent", "notify", "otlp", "webhook"),
    "eventbus.export.sinks.nats": ("nats",),
    "eventbus.export.sinks.postgres": ("postgres",),
    "eventbus.export.sinks.webhook": ("webhook",),
}
#: Packages of others that no extra installs.
OTHERS = ("eventbus.contrib.kopf", "eventbus.testing.plugin")

IMPORT_ALL = """
import importlib, pkgutil, eventbus
for module in pkgutil.walk_packages(eventbus.__path__, "eventbus."):
    try:
        module.name.endswith("__main__") or importlib.import_module(module.name)
    except ModuleNotFoundError:
        print(module.name)
"""


def test_each_extra_is_known_and_all_has_every_one() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert declared.pop("all") == [f"eventbus[{','.join(sorted(declared))}]"]
    assert {*declared} == {*EXTRAS}


@pytest.mark.parametrize("extra", one(["none", *EXTRAS, "all"]))
def test_a_module_can_be_imported_unless_an_extra_that_it_needs_is_missing(
    extra: str, with_extras: Callable[..., Installed]
) -> None:
    ours = with_extras(*[extra][: extra != "none"])
    done = subprocess.run(
        [ours.python, "-c", IMPORT_ALL], cwd=ours.folder, env={}, capture_output=True, text=True, check=True
    )
    failed = [module for module in done.stdout.split() if module not in OTHERS]
    for module in failed:
        enough = next((extras for name, extras in NEED.items() if module.startswith(name)), ())
        assert enough, f"{module} needs a package that eventbus alone does not install"
        assert extra not in (*enough, "all"), f"{module} needs more than {extra}"


OIDC = """{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [{
  "issuer": {"url": "https://127.0.0.1:1", "audiences": ["us"]},
  "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}}}]}"""

API = "worker api --listen 127.0.0.1:0"
#: Extra, a command that needs it, and the option that asks for it; each is run without the extra, and with it alone.
COMMANDS = [
    ("agent", "worker agent", ""),
    ("agent", "worker agent --manifests {folder}", ""),
    ("agent", "worker agent --standalone --manifests {folder}", ""),
    ("agent", "worker agent --manifest-url https://localhost:1/ --allow-command /opt/jobs/*", ""),
    ("api", API, ""),
    ("api", f"{API} --tls", ""),
    ("oidc", f"{API} --tls --authentication-config {{folder}}/users.yaml", "--authentication-config: "),
    ("kubernetes", "worker export --to kubernetes:", "this sink: "),
    ("postgres", "worker export --to postgresql://role@127.0.0.1:1/none", "this sink: "),
    ("nats", "worker export --to nats://127.0.0.1:1", "this sink: "),
    ("kafka", "worker export --to kafka://127.0.0.1:1", "this sink: "),
    ("s3", "worker export --to s3+http://127.0.0.1:1/events", "this sink: "),
    ("webhook", "worker export --to https://127.0.0.1:1/", "this sink: "),
    *(("metrics", f"worker {name} --metrics-port 0", "--metrics-port: ") for name in ("log", "lifecycle")),
    ("metrics", "worker sink --metrics-port 0", "--metrics-port: "),
    ("metrics", "up --api none --metrics-port 0", "--metrics-port: "),
    ("api", "up --api 127.0.0.1:0", "--api 127.0.0.1:0: "),
]
CASES = [pytest.param(*case, id="-".join(case).replace("/", "|")) for case in COMMANDS]


@pytest.fixture
def env(embedded_url: str, prefix: str, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "users.yaml").write_text(OIDC)
    return environment(embedded_url, prefix, state_dir=str(tmp_path / "state"), manifest_allow_hosts="localhost") | {
        "KUBECONFIG": str(write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")),
        "EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1",
        "PYTHONPATH": "",
    }


def start(ours: Installed, words: str, env: dict[str, str], folder: Path) -> subprocess.Popen[str]:
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "bufsize": 1}
    (folder / "pods").mkdir(exist_ok=True)
    command = [part.format(folder=folder / "pods" if "manifests" in words else folder) for part in words.split()]
    return subprocess.Popen([ours.eventbus, *command], cwd=folder, env=env, **given)


def lines(program: subprocess.Popen[str]) -> Iterator[str]:
    assert program.stdout is not None
    yield from iter(program.stdout.readline, "")


@pytest.mark.parametrize(("extra", "words", "option"), one(CASES))
def test_a_command_without_its_extra_names_it(
    extra: str, words: str, option: str, env: dict[str, str], with_extras: Callable[..., Installed], tmp_path: Path
) -> None:
    ours = with_extras(*(["api"] if extra == "oidc" else []))
    with start(ours, words, env, tmp_path) as program:
        said = [*lines(program)]
    error = f"error: {option}eventbus[{extra}] is needed: pip install 'eventbus[{extra}]'\n"
    assert (program.returncode, said) == (2, [error])


@pytest.mark.parametrize(("extra", "words", "option"), one(CASES))
def test_a_command_runs_with_its_extra_alone(
    extra: str, words: str, option: str, env: dict[str, str], with_extras: Callable[..., Installed], tmp_path: Path
) -> None:
    with start(with_extras(extra), words, env, tmp_path) as program:
        try:
            said = lines(program)
            begun = next((line for line in said if " works on " in line or "runs its pods without a bus" in line), "")
        finally:
            program.send_signal(signal.SIGTERM)
            rest = [*said]
    assert begun, rest
    assert program.returncode == 0, rest
    assert not [line for line in (begun, *rest) if "Traceback" in line or "is needed" in line]


@pytest.mark.parametrize(
    ("extra", "missing"),
    one(
        [
            pytest.param("none", ["api", "agent"]),
            pytest.param("api", ["agent"]),
            pytest.param("agent", ["api"]),
            pytest.param("all", []),
        ]
    ),
)
def test_up_says_in_a_line_each_what_is_missing_and_how_to_get_it(
    extra: str, missing: list[str], env: dict[str, str], with_extras: Callable[..., Installed], tmp_path: Path
) -> None:
    ours = with_extras(*[extra][: extra != "none"])
    what = {"api": "no page and no API", "agent": "no node, so this machine is not measured"}
    workers = {"eventbus-sink", *(f"eventbus-{name}" for name in what if name not in missing)}
    (tmp_path / "Procfile").write_text("log: exec sleep 900\nlifecycle: exec sleep 900")
    with start(ours, "up --procfile Procfile", env | {"PATH": os.defpath}, tmp_path) as program:
        said: list[str] = []
        try:
            for line in lines(program):
                said.append(line)
                workers -= {name for name in workers if f" INFO {name} " in line and "works on" in line}
                if not workers:
                    break
        finally:
            program.send_signal(signal.SIGTERM)
            said += lines(program)
    assert (program.returncode, workers) == (0, set()), said
    assert [line.partition("| ")[2].strip() for line in said if "is needed" in line] == [
        f"{what[name]}: eventbus[{name}] is needed: pip install 'eventbus[{name}]'" for name in missing
    ]
