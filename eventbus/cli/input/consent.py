"""Asks for confirmation before data is permanently lost."""

from __future__ import annotations

import sys

import click


def ask_consent(question: str) -> None:
    """Return if the answer to *question* is yes. Raises: Abort: it is no.  ClickException: no terminal."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise click.ClickException("nobody is there to answer: give --yes") from None
    if not agreed:
        raise click.Abort
