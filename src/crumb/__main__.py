"""``python -m crumb`` is the ``crumb`` command."""

from crumb.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
