"""``python -m kdump``."""

from kdump.cli.main import main

main()
