"""`python -m workers`: the console command `eventbus`."""

from workers.cli import main

main(prog_name="eventbus")
