"""`eventbus config …`: named buses, as in kubectl."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click
import msgspec

from eventbus.cli.contexts import (
    BUS_FIELDS,
    CONTEXT_VARIABLE,
    Context,
    Contexts,
    read_contexts,
    shown,
    write_contexts,
)
from eventbus.cli.input.global_options import complete_contexts
from eventbus.cli.input.options import together
from eventbus.cli.printers.output import dump_json, write
from eventbus.errors import ConfigError
from eventbus.model.names import is_dns_label
from eventbus.util.table import Table

#: The context that `set-context --current` creates if there is none.
FIRST = "default"
_HELP = {
    "redis_url": "As EVENTBUS_REDIS_URL; the file is this user's alone.",
    "redis_password_file": "File with the password for Redis.",
    "prefix": "Prefix of the bus's keys.",
    "state_dir": "Where the embedded server lives.",
    "url": "Of an API worker, in the place of Redis.",
    "token_file": "File with the token for the API.",
    "ca_file": "Authorities that are trusted for the API.",
    "client_cert": "Certificate for the API.",
    "client_key": "Key of that certificate.",
}


_bus_options = together(
    *(click.option(f"--{field.replace('_', '-')}", metavar="TEXT", help=_HELP[field]) for field in BUS_FIELDS)
)


@click.command()
@click.argument("name", required=False, shell_complete=complete_contexts)
@click.option("--current", is_flag=True, help="Change the current context, instead of a named one.")
@click.option("-n", "--namespace", metavar="TEXT", help="Namespace to use without -n.")
@_bus_options
def set_context(name: str | None, current: bool, namespace: str | None, **bus: str | None) -> None:
    """Create a context, or change the given fields of one; an empty value removes a field.

    \b
    Examples:
      eventbus config set-context prod --redis-url rediss://eventbus@redis-1/0 --redis-password-file /etc/eventbus/pw
      eventbus config set-context edge --url https://events.example.com --token-file ~/.eventbus-token
      eventbus config set-context --current -n shop      # set its namespace
    """
    if (name is None) is not current:
        raise click.UsageError("give the NAME of a context, or --current")
    if namespace and not is_dns_label(namespace):
        raise click.BadParameter(f"{namespace!a} is not a DNS label", param_hint="--namespace")
    _check(bus)
    contexts = read_contexts(os.environ)
    name = name if name is not None else _current(contexts) or FIRST
    known = next((other for other in contexts.contexts if other.name == name), None)
    given = {field: value for field, value in {"namespace": namespace, **bus}.items() if value is not None}
    changed = contexts.with_context(msgspec.structs.replace(known or Context(name=name), **given))
    if current and known is None:
        changed = msgspec.structs.replace(changed, current_context=name)
    write_contexts(changed, os.environ)
    click.echo(f'Context "{name}" {"created" if known is None else "modified"}.')


def _check(bus: Mapping[str, str | None]) -> None:
    """Refuse an invalid url now, not at its first use. Raises: ConfigError."""
    if bus["redis_url"] and bus["redis_url"].lower() != "none":
        from eventbus.broker.connection.address import parse_address

        parse_address(bus["redis_url"])
    if bus["url"]:
        from eventbus.client.address import parse_api_url
        from eventbus.settings import Settings

        parse_api_url(bus["url"], Settings())


@click.command()
@click.argument("name", shell_complete=complete_contexts)
def use_context(name: str) -> None:
    """Select the current context for all commands.

    EVENTBUS_REDIS_URL, EVENTBUS_URL and EVENTBUS_STATE_DIR override the current context; EVENTBUS_CONTEXT and --context
    override them.

    \b
    Examples:
      eventbus config use-context prod
      eventbus --context staging get events      # only this once
    """
    contexts = read_contexts(os.environ)
    contexts.named(name)
    write_contexts(msgspec.structs.replace(contexts, current_context=name), os.environ)
    click.echo(f'Switched to context "{name}".')


@click.command()
@click.argument("name", shell_complete=complete_contexts)
def delete_context(name: str) -> None:
    """Delete a context. The bus itself is not changed.

    \b
    Examples:
      eventbus config delete-context staging
    """
    contexts = read_contexts(os.environ)
    contexts.named(name)
    write_contexts(contexts.without(name), os.environ)
    click.echo(f'deleted context "{name}"')


@click.command()
@click.option("-o", "--output", type=click.Choice(["name", "json"]), help="Output in another form.")
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
def get_contexts(output: str | None, no_headers: bool) -> None:
    """List the contexts; the current one has a star.

    \b
    Examples:
      eventbus config get-contexts
      eventbus config get-contexts -o name
    """
    contexts = read_contexts(os.environ)
    if output == "name":
        write("".join(f"{other.name}\n" for other in contexts.contexts))
        return
    if output == "json":
        write(dump_json(msgspec.to_builtins([shown(other, raw=False) for other in contexts.contexts])) + "\n")
        return
    current = _current(contexts)
    rows = [("*" * (other.name == current), other.name, other.where, other.namespace) for other in contexts.contexts]
    table = Table(("Current", "Name", "Bus", "Namespace"), no_headers=no_headers)
    write(table.text(rows, even_without_rows=True))


@click.command()
def current_context() -> None:
    """Print the name of the current context.

    \b
    Examples:
      eventbus config current-context
    """
    name = _current(read_contexts(os.environ))
    if not name:
        cure = "eventbus config use-context NAME sets it"
        raise ConfigError(f"current-context is not set; {cure}", cure=cure)
    click.echo(name)


@click.command()
@click.option("--raw", is_flag=True, help="Show the passwords in URLs.")
@click.option("--minify", is_flag=True, help="Only the current context.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def view(raw: bool, minify: bool, output: str) -> None:
    """Show the contexts, without their passwords.

    \b
    Examples:
      eventbus config view
      eventbus config view --minify
    """
    from eventbus.util.yaml import dump_yaml

    contexts = read_contexts(os.environ)
    current = _current(contexts)
    kept = [shown(other, raw=raw) for other in contexts.contexts if not minify or other.name == current]
    data = msgspec.to_builtins(Contexts(current_context=current, contexts=tuple(kept)))
    write(dump_json(data) + "\n" if output == "json" else dump_yaml(data))


def _current(contexts: Contexts) -> str:
    return os.environ.get(CONTEXT_VARIABLE) or contexts.current_context
