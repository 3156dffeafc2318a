"""`python -m workers`: the console command `eventbus`."""

from eventbus_command import main

main()
