"""The subset of YAML that JSON can express, without aliases, so that a short text cannot expand to a huge object."""

from __future__ import annotations

import json
from collections.abc import Hashable
from functools import cache
from typing import Any, Final

#: Brackets within brackets; deeper is refused. JSON's own bound is in `json_read`.
MOST_DEPTH: Final = 100


@cache
def plain_loader() -> Any:
    """Return the loader: times stay strings, every key is a string, and aliases are refused.

    It raises yaml.YAMLError, ValueError, TypeError and RecursionError for unreadable text.
    """
    import yaml  # a slow import, seldom needed

    # Not the C loader: it crashes the process on deeply nested brackets.
    class Loader(yaml.SafeLoader):
        def fetch_flow_collection_start(self, token: Any) -> None:
            # PyYAML checks all open brackets at each new one: thousands of them take seconds.
            if self.flow_level >= MOST_DEPTH:
                raise ValueError("nested too deeply")
            super().fetch_flow_collection_start(token)

        def compose_node(self, parent: Any, index: Any) -> Any:
            # A few lines of aliases of aliases are gigabytes of JSON.
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not read")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            found = super().construct_mapping(node, deep=deep)
            return {key if isinstance(key, str) else json.dumps(key): value for key, value in found.items()}

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


__all__ = ["MOST_DEPTH", "plain_loader"]
