"""`python -m eventbus`: the console command `eventbus`."""

from eventbus_command import main

main()
