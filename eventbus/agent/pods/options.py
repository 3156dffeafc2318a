"""Options of an agent's pods, and the check that they go together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from eventbus.agent.node.node_status import MOST_PODS, parse_thresholds
from eventbus.broker.acl import Role
from eventbus.broker.bus import Bus
from eventbus.broker.embedded.server import default_directory
from eventbus.broker.health.user_checks import check_users
from eventbus.client.address import ApiAddress
from eventbus.client.transport import check_known
from eventbus.errors import ConfigError
from eventbus.model.names import is_dns_label
from eventbus.settings import Settings

#: Of an API worker, and of Redis.
_CURES = (f"eventbus worker api --grant {Role.OPERATOR}=user:NAME", f"eventbus acl --role {Role.OPERATOR}")


class PodOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of pods, and the rights of pods that come from no file of ours."""

    manifests: Path | None = None
    manifest_url: str = ""
    from_bus: tuple[str, ...] = ()  #: namespaces
    allow_commands: tuple[str, ...] = ()
    allow_env: tuple[str, ...] = ()
    allow_users: tuple[int, ...] = ()
    allow_groups: tuple[int, ...] = ()
    leave_pods: bool = False
    pressure_thresholds: str = ""
    max_pods: int = MOST_PODS

    @property
    def any(self) -> bool:
        """Return True if there is a source of pods."""
        return bool(self.manifests or self.manifest_url or self.from_bus)

    def check(self, *, standalone: bool) -> None:
        """Check the combination of options. Raises: ConfigError: names the missing option."""
        if standalone and self.from_bus:
            raise ConfigError("--standalone has no pods from the bus: take --pods-from-bus away")
        if (self.from_bus or self.manifest_url) and not self.allow_commands:
            source = "--pods-from-bus" if self.from_bus else "--manifest-url"
            raise ConfigError(f"{source} needs --allow-command: patterns of the commands that its pods may run here")
        parse_thresholds(self.pressure_thresholds)
        for namespace in self.from_bus:
            if not is_dns_label(namespace):
                raise ConfigError(f"--pods-from-bus {namespace!r} is no namespace")

    def check_bus(self, bus: Bus | ApiAddress) -> None:
        """Check that *bus*, which is open, may bring pods. Raises: ConfigError: with its cure.  BusUnavailable."""
        if not self.from_bus:
            return
        try:
            check_users(bus) if isinstance(bus, Bus) else check_known(bus)
        except ConfigError as error:
            raise ConfigError(
                "--pods-from-bus needs a bus for known users alone: users that may write Pods run programs here. "
                f"{error}. Give the agent a user of its own: {_CURES[isinstance(bus, Bus)]}"
            ) from error


def agent_folder(settings: Settings, environ: Mapping[str, str]) -> Path:
    """Return the folder in which an agent keeps its pods, logs and spool. Raises: ConfigError: no home directory."""
    chosen = {"EVENTBUS_STATE_DIR": settings.state_dir} if settings.state_dir else {}
    return default_directory({**environ, **chosen}) / "agent"
