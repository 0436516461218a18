"""``python -m fallow``: the command line without its script."""

from fallow.cli.main import main

if __name__ == "__main__":
    main()
