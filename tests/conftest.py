"""Servers to test against, a bus of its own for each test, and the rules every test obeys.

`server_url` runs a test against the embedded server and against Redis 7.0 and Valkey 8.1 in containers; without a
Docker engine the latter two are skipped, which in CI is a failure (`tests/plugins/summary.py`). With `any_server_url`
only `make test-long` has the containers.
"""

from __future__ import annotations

import gc
import os
import secrets
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.thin import thin

# A runner in the background, or under nohup, hands down ignored signals; what is tested here must hear them.
for _signal in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_signal) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(_signal, signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL)

# Files that others can write are refused in many places, and a umask of 002 would have all of a test's files be such.
os.umask(os.umask(0o022) | 0o022)

pytest_plugins = [
    "tests.plugins.summary",
    "tests.plugins.threads",
    "tests.plugins.faults",
    "tests.plugins.compiling",
    "tests.plugins.distribution",
    "tests.plugins.garbage",
    "tests.plugins.volume",
]

# Sinks of the tests' own, registered as an installed package has them; for the processes that tests start as well.
_REGISTERED = str(Path(__file__).parent / "registered")
sys.path.append(_REGISTERED)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), _REGISTERED)))

# No test speaks TLS to anybody whom the machine trusts, and to load all of those takes 30 ms for each context. This one
# authority has lost its key.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "no_authority.pem")

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# How fast examples are made says how busy the machine is, not whether the code is right.
_NOT_TIMED = [hypothesis.HealthCheck.too_slow]
_EXAMPLES = int(os.environ.get("EVENTBUS_TEST_EXAMPLES", "10"))  # `make test-long` tries more
hypothesis.settings.register_profile(
    "ours", deadline=None, suppress_health_check=_NOT_TIMED, max_examples=_EXAMPLES, print_blob=IN_CI
)
hypothesis.settings.load_profile("ours")


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The bus of whoever runs the tests is neither used nor touched."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith("EVENTBUS_")]:
            if not variable.startswith("EVENTBUS_TEST_"):
                patch.delenv(variable)
        patch.setenv("EVENTBUS_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        patch.setenv("EVENTBUS_CONFIG", str(tmp_path_factory.mktemp("config") / "config.json"))
        yield


@pytest.fixture
def prefix() -> str:
    """A prefix no other test uses: instead of a flush, so that tests may share a server."""
    return f"t{secrets.token_hex(6)}"


@pytest.fixture(scope="session")
def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An embedded server for this worker process, or the one `EVENTBUS_TEST_REDIS_URL` names."""
    given = os.environ.get("EVENTBUS_TEST_REDIS_URL")
    if given:
        yield given
        return
    from eventbus.broker.embedded.server import EmbeddedServer

    server = EmbeddedServer(tmp_path_factory.mktemp("embedded"))
    try:
        yield server.start()
    finally:
        server.stop()


def _in_container(name: str) -> Any:
    # one group a server: a single worker process then starts it, and only once
    return pytest.param(name, marks=[pytest.mark.container, pytest.mark.xdist_group(name)])


#: The servers that are no embedded one, as parameters of `server_url`.
CONTAINERS = [_in_container("redis-7.0"), _in_container("valkey-8.1")]


@pytest.fixture(params=["embedded", *CONTAINERS])
def server_url(request: pytest.FixtureRequest) -> str:
    """The test runs once against each kind of server: what it tests is done by the server."""
    return _url_of(request)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    own = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "any_server_url" in metafunc.fixturenames and "any_server_url" not in own:
        servers = thin(["embedded", *CONTAINERS], lambda server: server == "embedded")
        metafunc.parametrize("any_server_url", servers, indirect=True)


@pytest.fixture
def any_server_url(request: pytest.FixtureRequest) -> str:
    """The test is about what we do with a server: the embedded one; in `make test-long` each of the others as well."""
    return _url_of(request)


def _url_of(request: pytest.FixtureRequest) -> str:
    fixture = {"embedded": "embedded_url", "redis-7.0": "redis_url", "valkey-8.1": "valkey_url"}[request.param]
    url: str = request.getfixturevalue(fixture)
    return url


@pytest.fixture(scope="session")
def redis_url(_docker_engine: None) -> Iterator[str]:
    yield from _run_container(os.environ.get("TEST_REDIS_IMAGE", "redis:7.0"))


@pytest.fixture(scope="session")
def valkey_url(_docker_engine: None) -> Iterator[str]:
    yield from _run_container(os.environ.get("TEST_VALKEY_IMAGE", "valkey/valkey:8.1"))


@pytest.fixture(scope="session")
def _docker_engine() -> None:
    from tests.plugins.summary import NO_ENGINE

    if not _engine_answers():
        _unavailable(NO_ENGINE)


def _engine_answers() -> bool:
    import docker
    from docker.errors import DockerException

    with warnings.catch_warnings():
        # docker leaks the socket of a failed connect; collected here, it does not fail a test
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            client = docker.from_env(timeout=60)
        except DockerException:
            answers = False
        else:
            client.close()
            answers = True
        gc.collect()
    return answers


def _run_container(image: str) -> Iterator[str]:
    from docker.errors import DockerException
    from testcontainers.community.redis import RedisContainer

    container, cause = RedisContainer(image), ""
    try:
        container.start()
    except DockerException as error:
        cause = str(error)
    try:
        if cause:
            _unavailable(f"the image {image} does not start: {cause}")
        yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(container.port)}/0"
    finally:
        container.stop()
        container.get_docker_client().client.close()  # stop() leaves its socket open, and warnings are errors


def _unavailable(reason: str) -> None:
    if IN_CI:
        pytest.fail(f"{reason}; in CI that is a failure", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a path short enough for a unix socket (107 bytes), which pytest's own often is not."""
    with tempfile.TemporaryDirectory(prefix="eb") as folder:
        yield Path(folder)
