"""Entry point: `python -m plugin`, or `kubectl platform` once it is installed."""

from plugin.cli import main

main()
