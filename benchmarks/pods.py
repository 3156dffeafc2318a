"""The costs of an agent with many pods: the time until all run, its idle CPU and memory, and those of the shims.

python -m benchmarks.pods [--pods 100] [--containers 2] [--seconds 30]

The agent is a process of its own, `eventbus worker agent --manifests DIR --standalone`; each container is a `sleep`.
CPU times are measured, because the machine may be busy. PSS is of /proc/PID/smaps_rollup: shared memory counts by its
share.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from eventbus.agent.runtime.contract import PodRuntimeStatus
from eventbus.agent.runtime.folders import PodFolders
from eventbus.agent.runtime.observed import Observer
from eventbus.util.clock import SystemClock

_TICKS = os.sysconf("SC_CLK_TCK")
_LONGEST_S = 120.0


def main() -> int:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--containers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pods-"))
    manifests, state = folder / "manifests", folder / "state"
    manifests.mkdir(mode=0o755)
    for number in range(given.pods):
        (manifests / f"p{number}.json").write_text(json.dumps(_pod(number, given.containers)))
    environ = os.environ | {"EVENTBUS_STATE_DIR": str(state)}
    words = ("-m", "eventbus", "worker", "agent", "--manifests", str(manifests), "--standalone")
    began = time.monotonic()
    agent = subprocess.Popen([sys.executable, *words], env=environ, stderr=subprocess.DEVNULL)
    try:
        pods = _wait_for_all(state, given.pods, given.containers)
        took_s = time.monotonic() - began
        _report(agent.pid, pods, took_s, _cpu_s(agent.pid), given.seconds)
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(_LONGEST_S)
        subprocess.run([sys.executable, "-m", "eventbus", "down"], env=environ, stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(folder)
    return 0


def _pod(number: int, containers: int) -> dict[str, object]:
    made = [{"name": f"c{one}", "command": ["sleep", "100000"]} for one in range(containers)]
    spec = {"containers": made, "terminationGracePeriodSeconds": 5}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": spec}


def _wait_for_all(state: Path, pods: int, containers: int) -> list[PodRuntimeStatus]:
    observer, deadline = Observer(PodFolders(state / "agent"), SystemClock()), time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        found = observer.pods()
        if sum(run.running for pod in found for run in pod.containers) == pods * containers:
            return found
        time.sleep(0.1)
    raise SystemExit("not all pods run")


def _report(agent: int, pods: list[PodRuntimeStatus], took_s: float, cpu_s: float, seconds: float) -> None:
    processes = sum(len(pod.containers) for pod in pods)
    print(f"{len(pods)} pods, {processes} processes: all run after {took_s:.1f} s, {cpu_s:.1f} s CPU of the agent")
    time.sleep(5.0)
    before = _cpu_s(agent)
    time.sleep(seconds)
    idle_s = _cpu_s(agent) - before
    print(f"idle for {seconds:g} s: {100 * idle_s / seconds:.2f} % of a core, PSS {_pss_mib(agent):.1f} MiB")
    shims = [_pss_mib(pod.sandbox.shim_pid) for pod in pods if pod.sandbox]
    cpu = sum(_cpu_s(pod.sandbox.shim_pid) for pod in pods if pod.sandbox)
    print(f"shims: PSS {sum(shims) / len(shims):.2f} MiB each (most {max(shims):.2f}), {cpu:.2f} s CPU of all so far")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    sys.exit(main())
