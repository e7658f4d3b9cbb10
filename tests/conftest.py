"""What every test may count on: the tools that `make test` fetched come first on PATH (scripts/tools.sh)."""

from __future__ import annotations

import os
from pathlib import Path

TOOLS = Path(__file__).parents[1] / ".tools" / "bin"

os.environ["PATH"] = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
