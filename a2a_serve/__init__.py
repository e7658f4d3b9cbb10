"""a2a-serve: a project folder's coding agent as a colleague that others can reach over A2A."""

from importlib.metadata import version

__version__ = version("a2a-serve")
