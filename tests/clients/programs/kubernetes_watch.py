"""python-kubernetes: lists, writes, and watches from the last version it has, again and again."""

from __future__ import annotations

import sys
import time

import urllib3
from kubernetes import client, watch
from telling import NAMESPACE, new_event, tell

configuration = client.Configuration()
configuration.host = sys.argv[1]
api = client.CoreV1Api(client.ApiClient(configuration))


def main() -> None:
    listed = api.list_namespaced_event(NAMESPACE)
    tell(listed=[event.metadata.name for event in listed.items])
    api.create_namespaced_event(NAMESPACE, new_event("by-kubernetes"))
    patched = api.patch_namespaced_event("by-kubernetes", NAMESPACE, {"count": 2})
    tell(wrote=patched.metadata.name, count=patched.count)
    version = listed.metadata.resource_version
    while True:
        try:
            for step in watch.Watch().stream(api.list_namespaced_event, NAMESPACE, resource_version=version):
                version = step["object"].metadata.resource_version
                tell(type=step["type"], name=step["object"].metadata.name)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            tell(cut=type(error).__name__)
            time.sleep(0.1)


main()
