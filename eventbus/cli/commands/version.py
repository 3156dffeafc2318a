"""`eventbus version`: which version of the program this is, as `kubectl version` says it."""

from __future__ import annotations

import platform

import click

from eventbus.printers.output import dump_json, write


@click.command()
@click.option("-o", "--output", type=click.Choice(["json"]), help="JSON instead of two lines.")
def version(output: str | None) -> None:
    """Show the versions of this program and of its Python. `eventbus doctor` looks at the server.

    \b
    Examples:
      eventbus version
      eventbus version -o json
    """
    from importlib.metadata import version as version_of

    ours, python = version_of("eventbus"), platform.python_version()
    if output == "json":
        write(dump_json({"clientVersion": {"gitVersion": f"v{ours}", "pythonVersion": python}}) + "\n")
    else:
        write(f"Client Version: v{ours}\nPython Version: {python}\n")
