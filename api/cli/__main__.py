"""`python -m thresher.api.cli`, for launchers that start a module on several processes."""

from thresher.api.cli import main

main()
