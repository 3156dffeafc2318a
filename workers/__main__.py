"""`python -m workers`: the console command `eventbus`."""

from workers.entry import main

main()
