"""`eventbus version`: the version, build and formats of the program, in the form of `kubectl version`."""

from __future__ import annotations

import click

from eventbus.cli.printers.output import dump_json, write


@click.command()
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="JSON or YAML instead of lines.")
@click.option("--client", is_flag=True, help="For compatibility with kubectl; this command never asks a server.")
def version(output: str | None, client: bool) -> None:
    """Show version and git commit of this program, its build (its functions in Redis have this name), and its formats.

    A bus with another format needs another version: `eventbus format get` shows its format, `eventbus doctor` checks
    the server.

    \b
    Examples:
      eventbus version
      eventbus version -o json
    """
    from eventbus.broker.build import build_info, git_commit
    from eventbus.model.formats import CODECS, FORMATS, numbers_text

    ours, build, python = build_info().values()
    known = {
        "gitVersion": f"v{ours}",
        "gitCommit": git_commit(),
        "pythonVersion": python,
        "build": build,
        "formats": list(FORMATS),
        "codecs": list(CODECS),
    }
    if output == "json":
        write(dump_json({"clientVersion": known}) + "\n")
    elif output == "yaml":
        from eventbus.util.yaml import dump_yaml

        write(dump_yaml({"clientVersion": known}))
    else:
        write(f"Client Version: v{ours}\nGit Commit: {git_commit() or 'unknown'}\nPython Version: {python}\n")
        write(f"Build: {build}\nFormats: {numbers_text(FORMATS)}\nCodecs: {numbers_text(CODECS)}\n")
