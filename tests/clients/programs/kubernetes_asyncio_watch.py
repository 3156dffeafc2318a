"""kubernetes-asyncio: lists, writes, and watches from the last version it has, again and again."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
from kubernetes_asyncio import client, watch
from telling import NAMESPACE, new_event, tell


async def main(url: str) -> None:
    configuration = client.Configuration()
    configuration.host = url
    async with client.ApiClient(configuration) as connection:
        api = client.CoreV1Api(connection)
        listed = await api.list_namespaced_event(NAMESPACE)
        tell(listed=[event.metadata.name for event in listed.items])
        await api.create_namespaced_event(NAMESPACE, new_event("by-kubernetes-asyncio"))
        patched = await api.patch_namespaced_event("by-kubernetes-asyncio", NAMESPACE, {"count": 2})
        tell(wrote=patched.metadata.name, count=patched.count)
        version = listed.metadata.resource_version
        while True:
            try:
                stream = watch.Watch().stream(api.list_namespaced_event, NAMESPACE, resource_version=version)
                async for step in stream:
                    version = step["object"].metadata.resource_version
                    tell(type=step["type"], name=step["object"].metadata.name)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                tell(cut=type(error).__name__)
                await asyncio.sleep(0.1)


asyncio.run(main(sys.argv[1]))
