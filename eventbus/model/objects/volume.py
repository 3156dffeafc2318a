"""The volumes of a Pod: folders and files that its containers share, from elsewhere or made for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from eventbus.model.event import Int32
from eventbus.model.frozen import FrozenStruct

#: The rule of a file's mode, as the API server words it: a setuid file of a root agent would make its reader root.
FILE_MODE_RULE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
_MODES: Final = ("mode", "defaultMode")


class EmptyDirVolumeSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A folder that lives as long as the pod."""

    medium: str = ""
    size_limit: str | int | None = None


class HostPathVolumeSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A path of the machine. *type* Directory, DirectoryOrCreate, File, FileOrCreate, Socket is checked, "" is not."""

    path: str = ""
    type: str | None = None


class KeyToPath(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One key as a file. *mode*: its permissions, as a number."""

    key: str = ""
    path: str = ""
    mode: Int32 | None = None


class ConfigMapVolumeSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file a key of a ConfigMap; *items* choose some."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None


class SecretVolumeSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file a key of a Secret; *items* choose some."""

    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None


class Volume(FrozenStruct, frozen=True, rename="camel", omit_defaults=True):
    """A named volume of one sort. Sorts that no agent here has are kept, and refused where a pod is to run.

    Source: k8s.io/api core/v1 types.go Volume.
    """

    name: str = msgspec.field(default_factory=str)
    host_path: HostPathVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    downward_api: Any = msgspec.field(default=None, name="downwardAPI")
    projected: Any = None
    persistent_volume_claim: Any = None
    ephemeral: Any = None
    image: Any = None
    csi: Any = None
    nfs: Any = None
    iscsi: Any = None
    cephfs: Any = None
    rbd: Any = None
    fc: Any = None

    @property
    def foreign(self) -> str:
        """The sort of the volume, in JSON's spelling, if no agent here has it; "" otherwise."""
        known = ("name", "host_path", "empty_dir", "secret", "config_map")
        names = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        return next((field for name, field in names if name not in known and getattr(self, name) is not None), "")

    def bad_modes(self) -> Iterator[tuple[str, object]]:
        """Yield the modes of files that break FILE_MODE_RULE, each with its field, as `configMap.defaultMode`.

        Source: kubernetes `pkg/apis/core/validation/validation.go` fileModeErrorMsg.
        """
        sources = {
            "configMap": self.config_map,
            "secret": self.secret,
            "downwardAPI": self.downward_api,
            "projected": self.projected,
        }
        for field, source in sources.items():
            for where, mode in _modes(msgspec.to_builtins(source), field):
                if not _is_file_mode(mode):
                    yield where, mode


def _is_file_mode(mode: object) -> bool:
    """Return True if *mode* holds permissions alone: neither setuid, setgid nor sticky."""
    return isinstance(mode, int) and not isinstance(mode, bool) and 0 <= mode <= 0o777


def _modes(source: object, where: str) -> Iterator[tuple[str, object]]:
    if isinstance(source, dict):
        for name, value in source.items():
            if name in _MODES and value is not None:
                yield f"{where}.{name}", value
            else:
                yield from _modes(value, f"{where}.{name}")
    elif isinstance(source, list | tuple):
        for place, value in enumerate(source):
            yield from _modes(value, f"{where}[{place}]")
