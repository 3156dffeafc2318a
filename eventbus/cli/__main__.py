"""`python -m eventbus.cli`: the commands for people, without the workers."""

from eventbus.cli.main import cli

cli(prog_name="eventbus")
