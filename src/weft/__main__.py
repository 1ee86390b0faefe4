"""`python -m weft`: the command line."""

from weft.cli.main import command

if __name__ == "__main__":
    command()
