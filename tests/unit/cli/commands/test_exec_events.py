"""The words of `eventbus exec` about events that were not sent."""

from __future__ import annotations

import logging

from eventbus.cli.exec_recorder import LastProblem


def test_an_unexpected_error_is_named() -> None:
    logger, problem = logging.Logger("outbox"), LastProblem()
    logger.addHandler(problem)
    try:
        raise PermissionError(13, "Permission denied")
    except PermissionError:
        logger.exception("the outbox goes on after an unexpected error")
    assert problem.text == (
        "the outbox goes on after an unexpected error (PermissionError: [Errno 13] Permission denied)"
    )
