"""The kubeconfig of the sink and of the import."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.errors import ConfigError
from eventbus.export.sinks.kubernetes import load_config


def test_a_missing_kubeconfig_is_refused_with_a_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(ConfigError, match="not found: set KUBECONFIG to the path of a kubeconfig"):
        load_config("", "")
