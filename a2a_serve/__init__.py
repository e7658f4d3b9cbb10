"""a2a-serve: a project folder's coding agent as a colleague that others can reach over A2A."""


def __getattr__(name: str) -> str:
    """`__version__`, read when it is asked for: importing what reads it would cost each command 40 ms."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import version

    return version("a2a-serve")
