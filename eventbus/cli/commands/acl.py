"""`eventbus acl`: the line that makes a user with the rights of a role, and no others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from eventbus.cli.printers.output import dump_json, write
from eventbus.settings import Settings

#: A build id, as in the names of functions.
BUILD = re.compile("[0-9a-f]{8}")
#: The roles of `eventbus.broker.acl`, which `--help` need not import.
ROLES = [
    "producer",
    "reader",
    "worker",
    "notifier",
    "importer",
    "agent",
    "operator",
    "metrics",
    "deploy",
    "admin",
]


@click.command()
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    required=True,
    multiple=True,
    help="Role of the user; may be repeated.",
)
@click.option("--user", metavar="NAME", help="Name of the user; PREFIX-ROLE if not given.")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the password of the user; only its hash is printed.",
)
@click.option(
    "--with-build",
    "builds",
    multiple=True,
    metavar="BUILD",
    help="Also the functions of this build, an id as `eventbus functions list` shows it; may be repeated.",
)
@click.option("--add", is_flag=True, help="Print rules to add to an existing user, which keeps its other rules.")
@click.option("--format", "form", type=click.Choice(["setuser", "aclfile"]), default="setuser", show_default=True)
@click.option("-o", "--output", type=click.Choice(["json"]), help="User and rules as JSON.")
def acl(
    roles: tuple[str, ...],
    user: str | None,
    password_file: Path | None,
    builds: tuple[str, ...],
    add: bool,
    form: str,
    output: str | None,
) -> None:
    """Print the ACL line for a user with one or more roles. Redis is not contacted.

    \b
    Roles:
      producer   records events; reads none
      reader     lists and watches; writes nothing
      worker     runs the workers without a role of their own; also records and reads
      notifier   runs `worker notify`; all rights of producer and reader
      importer   runs `worker import`; all rights of producer and reader
      agent      keeps nodes and leases; also records
      operator   writes pods, config maps and secrets for agents; all rights of agent and reader
      metrics    reads the numbers of status and doctor; writes nothing
      deploy     creates the bus, sets options, deletes groups, replays the dead letter
      admin      administers the whole server: loads functions, backs up, reloads users

    A role is bound to one prefix, except admin. All prefixes on a server share its functions, and functions run with
    the rights of their caller. A user with the right to load functions can therefore read all data of that server,
    including Secrets. Buses that do not trust each other need separate servers.

    A role is not a sandbox: a producer can still fill the stream, or empty it with its own XADD.

    \b
    Before you add other users:
      eventbus functions load    once for each server, as a user of role admin
      eventbus options get       once for each bus, as a user of role deploy

    The rules list each function of this build, because ACL patterns cannot match functions. Before the workers of a new
    version start, the users also need its functions: `eventbus acl --add` of the new version prints the additional
    rights; in a file of users, --with-build adds the functions of another build.

    \b
    Examples:
      eventbus acl --role producer --password-file secret | redis-cli -u redis://admin@host
      eventbus acl --role worker --password-file secret --format aclfile >> users.acl
      EVENTBUS_PREFIX=shop eventbus acl --role reader
      eventbus acl --role worker --add | redis-cli -u redis://admin@host
      eventbus acl --role worker --with-build 3f9a1c02 --password-file secret --format aclfile >> users.acl
    """
    from eventbus.broker.acl import Role, acl_rules, acl_setuser

    prefix = Settings.from_environ(os.environ).prefix
    role, *more = (Role(one) for one in dict.fromkeys(roles))
    name = user or f"{prefix}-{role}"
    if not name.isprintable() or any(character.isspace() for character in name) or not name.isascii():
        raise click.BadParameter("the name of a user must be ASCII without spaces", param_hint="--user")
    for build in builds:
        if not BUILD.fullmatch(build):
            problem = f"{build!r} is no id of a build: it has eight digits of 0-9 and a-f"
            raise click.BadParameter(problem, param_hint="--with-build")
    if add:
        if form == "aclfile" or password_file:
            given = "--format aclfile" if form == "aclfile" else "--password-file"
            raise click.UsageError(
                f"--add changes a user that is there, and {given} makes a whole one: use --with-build"
            )
        words = (name, *acl_rules(role, prefix, also=more, with_builds=builds, add=True))
    else:
        password = _password(password_file)
        words = acl_setuser(role, user=name, password=password, prefix=prefix, also=more, with_builds=builds)
    if output == "json":
        write(dump_json({"user": name, "role": role, "rules": list(words[1:])}) + "\n")
        return
    # A file of users is read from nothing, and its parser does not know `reset`.
    line = " ".join(("ACL SETUSER", *words)) if form == "setuser" else " ".join(("user", words[0], *words[2:]))
    write(f"{line}\n")
    if password_file is None and not add:
        click.echo("Replace the placeholder with the SHA-256 of the password, or use --password-file.", err=True)


def _password(path: Path | None) -> str | None:
    if path is None:
        return None
    password = path.read_text("utf-8").strip()
    if not password:
        raise click.BadParameter(f"{path} is empty", param_hint="--password-file")
    return password
