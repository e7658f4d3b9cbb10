"""`python -m a2a_serve.cli` is `a2a-serve`."""

from a2a_serve.cli import main

main(prog_name="a2a-serve")
