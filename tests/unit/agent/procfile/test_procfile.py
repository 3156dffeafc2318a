"""A Procfile and its .env are read as foreman and honcho read them, and what is wrong is named by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.agent.procfile.procfile import ports_of, procfile_pods, read_env_file, read_procfile
from eventbus.errors import ConfigError


def test_each_line_is_a_name_and_a_command_in_order(tmp_path: Path) -> None:
    file = tmp_path / "Procfile"
    file.write_text("# programs\n\nweb: ./serve --port=80  # here\nmy-job_2:   echo a: b\n  last:x\n", "utf-8")
    assert list(read_procfile(file).items()) == [
        ("web", "./serve --port=80  # here"),
        ("my-job_2", "echo a: b"),
        ("last", "x"),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("web: a\nno colon", r":2: not of the form"),
        ("two words: a", r":1: not of the form"),
        ("web:", r":1: not of the form"),
        ("web: a\n\nweb: b", r":3: the name 'web' is used twice"),
        ("up: a", r":1: the name 'up' is taken"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "Procfile"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=problem):
        read_procfile(file)


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_procfile(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_procfile(tmp_path / "binary")


def test_the_forms_of_a_variable(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text('# of the shop\n\nA=b c\nexport B = \'x # "y"\'\nC="1\\n2\\\\"\nD=\n')
    assert read_env_file(file) == {"A": "b c", "B": 'x # "y"', "C": "1\n2\\", "D": ""}
    assert read_env_file(tmp_path / "none") == {}


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("A=b\nwhatever\n")
    with pytest.raises(ConfigError, match=r"\.env:2: not of the form NAME=value"):
        read_env_file(file)


def test_ports_are_a_hundred_apart() -> None:
    assert ports_of(["web", "queue"], {}) == {"web": "5000", "queue": "5100"}
    assert ports_of(["web"], {"PORT": "8000"}) == {"web": "8000"}
    assert ports_of(["web", "queue"], {"PORT": "65435"})["queue"] == "65535"


@pytest.mark.parametrize("port", ["x", "tcp://10.0.0.7:80", "0", "65536", "-1", pytest.param("9" * 5000, id="long")])
def test_a_port_that_is_none_is_refused_where_a_line_needs_it(port: str) -> None:
    assert ports_of([], {"PORT": port}) == {}
    with pytest.raises(ConfigError, match="is not a port"):
        ports_of(["web"], {"PORT": port})


def test_the_last_line_must_have_a_port_too() -> None:
    with pytest.raises(ConfigError, match="PORT='65500' leaves none for the last of 2 lines, each 100 above the one"):
        ports_of(["web", "queue"], {"PORT": "65500"})


def test_each_line_is_a_pod_with_the_variables_and_a_port_as_they_are_written(tmp_path: Path) -> None:
    web, worker = procfile_pods({"web": "a $HOME", "My_Worker": "b"}, tmp_path, {"PORT": "7000", "TOKEN": "$(x) $5"})
    assert (web.metadata.name, worker.metadata.name) == ("web", "my-worker")
    assert web.spec.containers[0].command == ("/bin/sh", "-c", "a $$HOME")
    assert {one.name: one.value for one in web.spec.containers[0].env} == {"PORT": "7000", "TOKEN": "$$(x) $$5"}
    assert {one.name: one.value for one in worker.spec.containers[0].env}["PORT"] == "7100"
