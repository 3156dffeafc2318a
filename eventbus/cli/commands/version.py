"""`eventbus version`: the version and build of the program, in the form of `kubectl version`."""

from __future__ import annotations

import click

from eventbus.cli.printers.output import dump_json, write


@click.command()
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="JSON or YAML instead of lines.")
@click.option("--client", is_flag=True, help="For compatibility with kubectl; this command never asks a server.")
def version(output: str | None, client: bool) -> None:
    """Show the versions of this program and of its Python, and the build that its functions in Redis are named for.

    `eventbus doctor` looks at the server.

    \b
    Examples:
      eventbus version
      eventbus version -o json
    """
    from eventbus.broker.build import build_info

    ours, build, python = build_info().values()
    known = {"clientVersion": {"gitVersion": f"v{ours}", "pythonVersion": python, "build": build}}
    if output == "json":
        write(dump_json(known) + "\n")
    elif output == "yaml":
        from eventbus.util.yaml import dump_yaml

        write(dump_yaml(known))
    else:
        write(f"Client Version: v{ours}\nPython Version: {python}\nBuild: {build}\n")
