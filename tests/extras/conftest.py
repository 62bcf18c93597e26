"""Tests that need an extra: left out where it is not installed, unless PLAN_TEST_EXTRAS says that it must be.

`.ci/run` sets it, in an environment with the extras, so that nothing is skipped there in silence.
"""

import os
from importlib.util import find_spec

NEEDED = {
    "test_ray.py": ("ray",),
    "test_parquet.py": ("pyarrow",),
    "test_frames.py": ("pandas", "polars"),
    "test_figures.py": ("matplotlib", "plotly"),
    "test_notebook.py": ("pandas",),
}

collect_ignore = [
    name
    for name, libraries in NEEDED.items()
    if not all(map(find_spec, libraries)) and not os.environ.get("PLAN_TEST_EXTRAS")
]
