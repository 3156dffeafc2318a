"""Schemathesis makes requests of our own OpenAPI, good ones and bad ones: none is answered with a fault of ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.clients.tools import STATE
from tests.support.api_worker import api_worker
from tests.support.metrics import samples

PROGRAM = STATE / "venv" / "bin" / "st"
#: The first has 46 operations, and takes many minutes: make test-clients ARGS='-m volume'.
DOCUMENTS = (
    pytest.param("api/v1", marks=pytest.mark.volume),
    "apis/events.k8s.io/v1",
    "apis/coordination.k8s.io/v1",
    "eventbus/v1",
)
#: Of each operation.
EXAMPLES = os.environ.get("EVENTBUS_TEST_EXAMPLES", "4")


@pytest.mark.skipif(not PROGRAM.exists(), reason="make test-clients makes its environment")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_request_that_the_document_allows_or_not_is_a_fault_of_ours(
    document: str, embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    with api_worker(embedded_url, prefix, tmp_path, "--grant", "operator=user:system:local", partitions="2") as worker:
        # What lasts until the client goes, a watch or the stream, ends with the time of a request.
        command = [str(PROGRAM), "run", f"{worker.url}/openapi/v3/{document}", "--url", worker.url]
        command += ["--max-examples", EXAMPLES, "--request-timeout", "1", "--checks", "not_a_server_error"]
        command += ["--phases", "coverage,fuzzing", "--exclude-path", "/eventbus/v1/stream", "--no-color"]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        counted = list(samples(worker.call("GET", "/metrics").data.decode(), "eventbus_apiserver_request_total"))
        assert sum(found.value for found in counted) > 50, ran.stdout[-2000:]
        assert [found for found in counted if found.labels["code"].startswith("5")] == [], ran.stdout[-4000:]
        assert "Server error" not in ran.stdout
        assert "Traceback" not in worker.program.err
