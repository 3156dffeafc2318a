"""Pods as real processes: started, seen, ended, by the rules of the kubelet's SyncPod."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventbus.agent.runtime import container_starting
from eventbus.agent.runtime.contract import CommandNotFound, ContainerPhase, MountFailed, RuntimeProblem
from eventbus.agent.shim.procfs import read_process
from eventbus.broker.functions import GroupPolicy
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.config import ConfigMap, Secret
from tests.support.runtime_world import UID, RuntimeWorld, container, is_idle, make_pod, runtime_world
from tests.waiting import eventually


def test_a_pod_runs_and_its_exit_code_is_kept(world: RuntimeWorld) -> None:
    result = world.sync(make_pod("echo out; echo err >&2; exit 7", restartPolicy="Never"))

    run = world.ended()
    assert not result.failed
    assert (run.exit_code, run.reason, run.attempt) == (7, "Error", 0)
    eventually(lambda: world.log() == "out\nerr\n")
    assert world.told.reasons == ["Created", "Started"]
    assert world.told.events[1] == ("Normal", "Started", "spec.containers{main}", "Started container main")


def test_a_signal_is_told_from_an_exit_code(world: RuntimeWorld) -> None:
    world.sync(make_pod("kill -11 $$$$", restartPolicy="Never"))

    run = world.ended()
    assert (run.exit_code, run.signal) == (139, 11)


def test_a_sync_of_what_runs_does_nothing(world: RuntimeWorld) -> None:
    pod = make_pod("exec sleep 1000", "exec sleep 1000")
    world.sync(pod)
    before = world.status()

    assert not world.sync(pod).failed
    assert world.status() == before
    assert len(world.told.events) == 4


def test_the_first_restart_is_at_once_and_the_second_waits(world: RuntimeWorld) -> None:
    pod = make_pod("exit 1")
    world.sync(pod)
    world.ended()
    world.sync(pod)
    world.ended(attempt=1)

    result = world.sync(pod)
    assert result.waiting["main"].reason == "CrashLoopBackOff"
    assert result.waiting["main"].message.startswith("back-off 10s restarting failed container=main pod=web-0_shop(")
    assert 0 < (result.retry_s or 0) <= 10
    assert world.told.events[-1][:2] == ("Warning", "BackOff")
    previous = world.status().previous("main")
    assert previous is not None
    assert previous.attempt == 0


@pytest.mark.parametrize(
    ("policy", "code", "restarts"), [("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)]
)
def test_restarts_follow_the_policy(world: RuntimeWorld, policy: GroupPolicy, code: int, restarts: bool) -> None:
    pod = make_pod(f"exit {code}", restartPolicy=policy)
    world.sync(pod)
    world.ended()
    world.sync(pod)

    assert (world.run().attempt == 1) is restarts


def test_init_containers_run_one_by_one_before_the_others(world: RuntimeWorld) -> None:
    pod = make_pod("echo main", initContainers=[container("one", "echo 1"), container("two", "echo 2")])
    names = []
    for name in ("one", "two", "main"):
        world.sync(pod)
        names.append([run.name for run in world.status().containers])
        world.ended(name)

    assert names == [["one"], ["one", "two"], ["main", "one", "two"]]
    assert world.told.events[0][2] == "spec.initContainers{one}"


def test_an_init_container_that_fails_for_good_ends_its_pod(world: RuntimeWorld) -> None:
    pod = make_pod("echo main", restartPolicy="Never", initContainers=[container("one", "exit 4")])
    world.sync(pod)
    world.ended("one")
    world.sync(pod)

    assert world.status().container("main") is None
    assert not world.status().active


def test_a_definition_that_changed_restarts_that_container_alone(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000", "exec sleep 1000"))
    before = world.status()
    world.sync(make_pod("exec sleep 1000", "exec sleep 2000"))

    kept, changed = world.run("c0"), world.run("c1")
    assert kept == before.container("c0")
    assert (changed.attempt, changed.running) == (1, True)
    assert world.told.message("Killing") == "Container c1 definition changed, will be restarted"


def test_killing_asks_first(world: RuntimeWorld) -> None:
    pod = make_pod("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    world.sync(pod)
    eventually(lambda: "up" in world.log())
    world.runtime.kill_pod(UID, pod)

    assert world.run().exit_code == 0
    eventually(lambda: world.log().splitlines()[-1] == "bye")
    assert world.told.message("Killing") == "Stopping container main"
    assert not world.status().active
    assert world.processes() == []


def test_what_does_not_end_in_its_grace_time_is_killed(world: RuntimeWorld) -> None:
    pod = make_pod("trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.05; done")
    world.sync(pod)
    eventually(lambda: "up" in world.log())
    world.runtime.kill_pod(UID, pod, 0.1)

    assert (world.run().signal, world.run().grace_exceeded) == (9, True)
    assert world.told.reasons[-1] == "ExceededGracePeriod"
    assert world.processes() == []


def test_a_pod_that_was_ended_has_not_even_left_a_process_that_is_slow_to_go(world: RuntimeWorld) -> None:
    large = "import os, time; held = bytes(1) * 60_000_000; print(os.getpid(), flush=True); time.sleep(1e6)"
    world.sync(make_pod(f"trap '' TERM; setsid {sys.executable} -c '{large}' & while :; do sleep 0.05; done"))
    eventually(lambda: world.log().endswith("\n"))
    world.runtime.kill_pod(UID, None, 0.1)

    left = read_process(int(world.log().split()[0]))
    assert left is None or left.gone


def test_what_a_container_leaves_behind_ends_with_it(world: RuntimeWorld) -> None:
    world.sync(make_pod("(setsid sleep 1000 &) ; exit 0", restartPolicy="Never"))
    world.ended()

    eventually(lambda: world.processes() == [])


def test_hooks_run_after_the_start_and_before_the_end(world: RuntimeWorld) -> None:
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", "echo started > $EVENTBUS_CONTAINER_DIR/hooks"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo stopping >> $EVENTBUS_CONTAINER_DIR/hooks"]}},
    }
    pod = make_pod(containers=[container("main", "exec sleep 1000", lifecycle=hooks)])
    world.sync(pod)
    world.runtime.kill_pod(UID, pod, 60.0)

    assert (world.folder / "pods" / UID / "containers/main/hooks").read_text() == "started\nstopping\n"


def test_a_post_start_hook_that_fails_ends_its_container(world: RuntimeWorld) -> None:
    hooks = {"postStart": {"exec": {"command": ["sh", "-c", "echo no way; exit 3"]}}}
    result = world.sync(make_pod(containers=[container("main", "exec sleep 1000", lifecycle=hooks)]))

    assert result.waiting["main"].reason == "PostStartHookError"
    assert world.told.message("FailedPostStartHook") == "PostStartHook failed: no way"
    assert not world.run().running


def test_a_post_start_hook_that_hangs_does_not_hold_up_the_end_of_its_pod(
    world: RuntimeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_starting, "POST_START_S", 3600.0)
    hooks = {"postStart": {"exec": {"command": ["sh", "-c", "echo > $EVENTBUS_CONTAINER_DIR/hook; exec sleep 3600"]}}}
    pod = make_pod(
        containers=[container("main", "exec sleep 3600", lifecycle=hooks), container("next", "exec sleep 3600")]
    )
    begun = world.folder / "pods" / UID / "containers/main/hook"
    world.runtime.sync_pod(pod, wanted=lambda: not begun.exists())

    assert world.status().container("next") is None, "nothing more is started"
    world.runtime.kill_pod(UID, pod, 5.0)
    assert world.processes() == []
    assert "FailedPostStartHook" not in world.told.reasons


def test_a_pre_stop_hook_that_fails_is_told(world: RuntimeWorld) -> None:
    hooks = {"preStop": {"httpGet": {"port": "nowhere"}}}
    pod = make_pod(containers=[container("main", "exec sleep 1000", lifecycle=hooks)])
    world.sync(pod)
    world.runtime.kill_pod(UID, pod, 5.0)

    assert "couldn't find port 'nowhere'" in world.told.message("FailedPreStopHook")


def test_variables_come_from_all_their_sources(world: RuntimeWorld) -> None:
    world.configs.config_maps["settings"] = ConfigMap(data={"colour": "blue", "size": "9"})
    world.configs.secrets["keys"] = Secret(string_data={"token": "hush"})
    env = [
        {"name": "PLAIN", "value": "a $(FROM_size) $$(x)"},
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "none", "key": "x", "optional": True}}},
    ]
    script = 'echo "$PLAIN|$COLOUR|$TOKEN|$WHO|${MAYBE-unset}"'
    from_all = [{"prefix": "FROM_", "configMapRef": {"name": "settings"}}]
    world.sync(make_pod(containers=[container("main", script, env=env, envFrom=from_all)], restartPolicy="Never"))
    world.ended()

    eventually(lambda: world.log() == "a 9 $(x)|blue|hush|web-0|unset\n")


def test_a_secret_is_neither_in_state_files_nor_in_events(world: RuntimeWorld) -> None:
    world.configs.secrets["keys"] = Secret(string_data={"token": "hunter2"})
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}}]
    world.sync(make_pod(containers=[container("main", "exec sleep 1000", env=env)]))

    texts = [path.read_text() for path in world.folder.rglob("*") if path.is_file()]
    assert not any("hunter2" in text for text in (*texts, str(world.told.events)))


def test_a_container_waits_for_its_config_map(world: RuntimeWorld) -> None:
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "a"}}}]
    pod = make_pod(containers=[container("main", "exec sleep 1000", env=env)])

    result = world.sync(pod)
    assert result.waiting["main"].reason == "CreateContainerConfigError"
    assert world.told.events == [("Warning", "Failed", "spec.containers{main}", 'Error: configmap "late" not found')]
    world.configs.config_maps["late"] = ConfigMap(data={"a": "b"})
    assert not world.sync(pod).failed
    assert world.run().attempt == 0


def test_a_command_that_is_not_there_is_told_and_not_run(world: RuntimeWorld) -> None:
    result = world.sync(make_pod(containers=[{"name": "main", "command": ["no-such-program"]}]))

    assert result.waiting["main"].reason == "RunContainerError"
    assert 'exec: "no-such-program": executable file not found in $PATH' in world.told.message("Failed")
    assert world.status().containers == ()


def test_a_program_that_cannot_be_executed_leaves_a_start_error(world: RuntimeWorld, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF but no")
    broken.chmod(0o755)
    result = world.sync(make_pod(containers=[{"name": "main", "command": [str(broken)]}]))

    assert result.waiting["main"].reason == "RunContainerError"
    assert (world.run().reason, world.run().exit_code) == ("StartError", 128)


def test_volumes_are_made_and_follow_their_sources(world: RuntimeWorld) -> None:
    world.configs.secrets["keys"] = Secret(metadata=ObjectMeta(name="keys"), string_data={"token": "1"})
    volumes = [{"name": "keys", "secret": {"secretName": "keys"}}, {"name": "scratch", "emptyDir": {}}]
    mounts = [{"name": "keys", "mountPath": "keys"}, {"name": "scratch", "mountPath": "/var/scratch"}]
    script = 'cat keys/token; echo; touch "$EVENTBUS_MOUNTS/var/scratch/made"; exec sleep 1000'
    pod = make_pod(containers=[container("main", script, volumeMounts=mounts)], volumes=volumes)
    world.sync(pod)

    held = world.folder / "pods" / UID / "volumes"
    eventually(lambda: (held / "scratch/made").exists())
    eventually(lambda: world.log() == "1\n")  # the shim reads the output later
    assert (held / "keys/token").stat().st_mode & 0o777 == 0o400
    world.configs.secrets["keys"] = Secret(string_data={"token": "2", "more": "3"})
    world.sync(pod)
    assert {path.name: path.read_text() for path in held.glob("keys/[a-z]*")} == {"token": "2", "more": "3"}
    assert world.run().attempt == 0


@pytest.mark.parametrize("paths", [("a/current", "a"), ("/a", "/a/b/current")])
def test_no_volume_is_mounted_within_another(world: RuntimeWorld, tmp_path: Path, paths: tuple[str, str]) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "current").symlink_to("release-1")
    volumes = [{"name": "a", "hostPath": {"path": str(theirs)}}, {"name": "b", "emptyDir": {}}]
    mounts = [{"name": name, "mountPath": path} for name, path in zip("ab", paths, strict=True)]
    pod = make_pod(containers=[container("main", "true", volumeMounts=mounts)], volumes=volumes)

    assert world.sync(pod).waiting["main"].reason == "CreateContainerConfigError"
    assert os.listdir(theirs) == ["current"]
    assert os.readlink(theirs / "current") == "release-1"


def test_a_link_that_a_container_made_leads_no_mount_elsewhere(world: RuntimeWorld, tmp_path: Path) -> None:
    mounts = [{"name": "v", "mountPath": "sub/mounted"}]
    main = container("main", f"rm -r sub; ln -s {tmp_path} sub; exit 1", volumeMounts=mounts)
    pod = make_pod(containers=[main], volumes=[{"name": "v", "emptyDir": {}}])
    world.sync(pod)
    world.ended()

    assert "sub is a link" in world.sync(pod).waiting["main"].message
    assert not (tmp_path / "mounted").is_symlink()


def test_the_whole_folder_is_no_mount(world: RuntimeWorld) -> None:
    for path in ("", ".", "/"):
        main = container("main", "true", volumeMounts=[{"name": "v", "mountPath": path}])
        pod = make_pod(containers=[main], volumes=[{"name": "v", "emptyDir": {}}])

        assert "is the whole folder" in world.sync(pod).waiting["main"].message


def test_a_volume_that_is_not_there_is_named(world: RuntimeWorld, tmp_path: Path) -> None:
    volumes = [
        {"name": "a", "configMap": {"name": "none"}},
        {"name": "b", "hostPath": {"path": str(tmp_path / "no"), "type": "Directory"}},
        {"name": "c", "nfs": {"server": "x", "path": "/"}},
    ]
    with pytest.raises(MountFailed) as caught:
        world.runtime.volumes.mount(make_pod("true", volumes=volumes))

    said = str(caught.value)
    assert 'volume "a" : configmap "none" not found' in said
    assert "hostPath type check failed" in said
    assert "volumes of the sort nfs do not exist here" in said


def test_logs_of_the_two_newest_runs_of_a_container_are_kept(world: RuntimeWorld) -> None:
    logs = world.folder / "pods" / UID / "logs" / "main"
    for attempt in range(4):
        world.sync(make_pod(f"echo {attempt}; exec sleep 1000"))  # another definition, which restarts it at once
        eventually(lambda attempt=attempt: world.log() == f"{attempt}\n")  # type: ignore[misc]
        (logs / f"{attempt}.log.1").write_text("an older piece")
    assert {path.name for path in logs.iterdir()} == {"2.log", "2.log.1", "3.log", "3.log.1"}
    assert world.log(previous=True) == "an older piece2\n"


def test_no_file_of_a_volume_has_more_than_permissions(world: RuntimeWorld) -> None:
    world.configs.config_maps["c"] = ConfigMap(data={"a": "#!/bin/sh"})
    world.configs.secrets["s"] = Secret(data={"a": "IyE="})
    sources: list[dict[str, Any]] = [
        {"configMap": {"name": "c", "defaultMode": 0o4755}},
        {"secret": {"secretName": "s", "defaultMode": 0o2755}},
        {"configMap": {"name": "c", "items": [{"key": "a", "path": "a", "mode": 0o4755}]}},
        {"secret": {"secretName": "s", "items": [{"key": "a", "path": "a", "mode": -1}]}},
    ]
    for source in sources:
        with pytest.raises(MountFailed, match=r"[mM]ode: -?\d+ must be a number between 0 and 0777 \(octal\)"):
            world.runtime.volumes.mount(make_pod("true", volumes=[{"name": "v", **source}]))
        assert not list((world.folder / "pods" / UID).rglob("a"))


def test_a_key_may_not_lead_out_of_its_volume(world: RuntimeWorld) -> None:
    world.configs.config_maps["bad"] = ConfigMap(data={"a": "b"})
    volumes = [{"name": "a", "configMap": {"name": "bad", "items": [{"key": "a", "path": "../../up"}]}}]

    with pytest.raises(MountFailed, match="no path inside a volume"):
        world.runtime.volumes.mount(make_pod("true", volumes=volumes))


def test_a_command_runs_inside_a_container(world: RuntimeWorld) -> None:
    world.sync(make_pod(containers=[container("main", "exec sleep 1000", env=[{"name": "A", "value": "b"}])]))

    result = world.runtime.exec_in(UID, "main", ["sh", "-c", "echo $A; pwd; exit 3"], 30.0)
    assert (result.exit_code, result.timed_out) == (3, False)
    assert result.output.decode() == f"b\n{world.folder}/pods/{UID}/containers/main\n"
    assert world.runtime.exec_in(UID, "main", ["sleep", "1000"], 0.05).timed_out
    with pytest.raises(CommandNotFound):
        world.runtime.exec_in(UID, "main", ["no-such-program"], 1.0)
    with pytest.raises(RuntimeProblem, match="container other does not run"):
        world.runtime.exec_in(UID, "other", ["true"], 1.0)


def test_what_runs_is_not_removed(world: RuntimeWorld) -> None:
    pod = make_pod("exec sleep 1000")
    world.sync(pod)
    with pytest.raises(RuntimeProblem, match="still runs"):
        world.runtime.remove(UID)
    world.runtime.kill_pod(UID, pod, 0.0)
    world.runtime.remove(UID)

    assert world.runtime.pods() == []
    assert list((world.folder / "pods").iterdir()) == []


def test_a_pod_that_comes_again_under_its_uid_has_runs_of_its_own(world: RuntimeWorld) -> None:
    pod = make_pod("exec sleep 1000")
    world.sync(pod)
    world.runtime.kill_pod(UID, pod, 5.0)
    state = world.runtime._observer.state(UID)
    assert state is not None
    world.runtime._observer.learn(UID, state["runs"][0])  # as of a shim that was slow to write it down
    world.runtime.remove(UID)
    world.sync(pod)

    assert (world.run().running, world.run().attempt) == (True, 0)


def test_a_pod_that_is_deleted_is_not_restarted(world: RuntimeWorld) -> None:
    pod = make_pod("exit 1")
    world.sync(pod)
    world.ended()
    deleted = msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=world.run().finished_at)
    )
    world.sync(deleted)

    assert world.run().attempt == 0


def test_a_run_killed_for_its_probe_is_run_again_though_it_ended_well(world: RuntimeWorld) -> None:
    script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"
    pod = make_pod(script, restartPolicy="OnFailure")
    world.sync(pod)
    eventually(lambda: "up" in world.log())
    world.runtime.kill_container(pod, "main", "Container main failed liveness probe, will be restarted")
    assert (world.run().phase, world.run().exit_code) == (ContainerPhase.EXITED, 0)
    world.sync(pod)

    assert world.run().attempt == 1
    assert world.told.message("Killing") == "Container main failed liveness probe, will be restarted"


def test_a_pod_of_the_same_uid_of_another_agent_is_left_alone(world: RuntimeWorld, tmp_path: Path) -> None:
    pod = make_pod("exec sleep 1000")
    world.sync(pod)
    with runtime_world(tmp_path / "another") as another:
        another.sync(pod)
        another.runtime.kill_pod(UID, pod, 0.0)
        another.runtime.remove(UID)  # raises RuntimeProblem if it takes the other agent's processes for its own

    assert world.run().running


def test_a_process_that_closes_its_output_does_not_keep_its_shim_busy(world: RuntimeWorld) -> None:
    world.sync(make_pod("exec sleep 1000 >&- 2>&-"))
    sandbox = world.status().sandbox
    assert sandbox is not None

    eventually(lambda: is_idle(sandbox.shim_pid))
    assert world.run().running


def test_a_shim_whose_folder_was_taken_away_ends_with_the_last_process(world: RuntimeWorld) -> None:
    world.sync(make_pod("while [ ! -e go ]; do sleep 0.05; done", restartPolicy="Never"))
    sandbox, run = world.status().sandbox, world.run()
    assert sandbox is not None
    folder = world.folder / "pods" / UID
    os.rename(folder, folder.with_name("elsewhere"))

    os.kill(run.pid, signal.SIGKILL)
    eventually(lambda: read_process(sandbox.shim_pid) is None)
