"""The version of Weft, in one place: the build reads this file, and so does `weft --version`."""

__version__ = "0.1.0"
