"""Where `eventbus up` cannot run."""

from __future__ import annotations

import platform

import pytest

from eventbus.errors import ConfigError
from eventbus.workers.up import up


def test_elsewhere_than_on_linux_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(ConfigError, match=r"`eventbus up` needs Linux.*eventbus worker sink"):
        up.main([], standalone_mode=False)
