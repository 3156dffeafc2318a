"""`eventbus acl`: the line that makes a user with the rights of a role, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import click

from eventbus.printers.output import dump_json, write
from eventbus.settings import Settings

ROLES = ["producer", "reader", "worker", "agent", "operator", "metrics", "deploy", "admin"]


@click.command()
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    required=True,
    multiple=True,
    help="What the user is for; several times for a user of several roles.",
)
@click.option("--user", metavar="NAME", help="Name of the user; PREFIX-ROLE if not given.")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Its password, in a file; only the hash is printed.",
)
@click.option("--format", "form", type=click.Choice(["setuser", "aclfile"]), default="setuser", show_default=True)
@click.option("-o", "--output", type=click.Choice(["json"]), help="User and rules as JSON.")
def acl(roles: tuple[str, ...], user: str | None, password_file: Path | None, form: str, output: str | None) -> None:
    """Print the ACL line for a user of one role, or of several. Nothing is sent anywhere.

    \b
    Roles:
      producer   records events; reads none
      reader     lists and watches; writes nothing
      worker     runs the workers; also records and reads
      agent      keeps nodes and leases; also records
      operator   owns pods, config maps and secrets: what agents run; also what agent and reader may
      metrics    reads the numbers of status and doctor; writes nothing
      deploy     makes the bus: sets options, deletes groups, replays the dead letter
      admin      administers the whole server: loads functions, backs up, reloads users

    A role is bound to one prefix, except admin. All prefixes on a server share its functions, and functions run with
    the rights of their caller. A user who can load functions can therefore read everything on that server, Secrets
    included. Buses that do not trust each other need servers of their own.

    A role is no sandbox: a producer may still fill the stream, or empty it with an XADD of its own.

    
    Before the other users come:
      eventbus functions load    once for each server, as a user of role admin
      eventbus options get       once for each bus, as a user of role deploy

    \b
    Examples:
      eventbus acl --role producer --password-file secret | redis-cli -u redis://admin@host
      eventbus acl --role worker --password-file secret --format aclfile >> users.acl
      EVENTBUS_PREFIX=shop eventbus acl --role reader
    """
    from eventbus.broker.access.roles import Role, acl_setuser

    prefix = Settings.from_environ(os.environ).prefix
    role, *more = (Role(one) for one in dict.fromkeys(roles))
    name = user or f"{prefix}-{role}"
    if not name.isprintable() or any(character.isspace() for character in name) or not name.isascii():
        raise click.BadParameter("a user's name has no spaces and only ASCII in it", param_hint="--user")
    words = acl_setuser(role, user=name, password=_password(password_file), prefix=prefix, also=more)
    if output == "json":
        write(dump_json({"user": name, "role": role, "rules": list(words[1:])}) + "\n")
        return
    # A file of users is read from nothing, and its parser does not know `reset`.
    line = " ".join(("ACL SETUSER", *words)) if form == "setuser" else " ".join(("user", words[0], *words[2:]))
    write(f"{line}\n")
    if password_file is None:
        click.echo("Put the SHA-256 of the password where the line says so, or give --password-file.", err=True)


def _password(path: Path | None) -> str | None:
    if path is None:
        return None
    password = path.read_text("utf-8").strip()
    if not password:
        raise click.BadParameter(f"{path} is empty", param_hint="--password-file")
    return password
