"""A kopf operator as a program: `python -m tests.support.kopf_operator URL`, until SIGTERM.

Its handler posts in every way there is, in a thread.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import kopf

from eventbus import EventBroadcaster
from eventbus.contrib.kopf import record_kopf_events


def main(url: str) -> None:
    logging.basicConfig(level=logging.INFO)

    @kopf.on.login()
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=url, default_namespace="default")

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.loggers = True

    @kopf.on.create("kopf.dev", "v1", "kopfexamples")
    def created(body: kopf.Body, logger: Any, **_: Any) -> None:
        kopf.info(body, reason="Created", message="made it")
        kopf.warn(body, reason="Slow", message="it took long")
        kopf.event(body, type="Invented", reason="Invented", message="by this program")
        try:
            raise OSError("no disk")
        except OSError:
            kopf.exception(body, message="while creating:")
        logger.info("seen by the handler")

    with EventBroadcaster() as broadcaster:
        record_kopf_events(broadcaster.new_recorder("operator"))
        kopf.run(standalone=True, clusterwide=True)


if __name__ == "__main__":
    main(sys.argv[1])
