"""Tests that need an extra: left out where it is not installed, unless PLAN_TEST_EXTRAS says that it must be.

`.ci/run` sets it, in an environment with the extras, so that nothing is skipped there in silence.
"""

import os
from importlib.util import find_spec

NEEDED = {"test_ray.py": "ray", "test_parquet.py": "pyarrow"}

collect_ignore = [
    name for name, library in NEEDED.items() if find_spec(library) is None and not os.environ.get("PLAN_TEST_EXTRAS")
]
