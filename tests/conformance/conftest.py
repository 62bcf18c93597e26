"""What every conformance test needs before its framework is imported."""

import os
import tempfile
import typing

# torch builds extensions under the home folder, behind a lock file that a killed run leaves, and waits for it for ever.
EXTENSIONS = tempfile.TemporaryDirectory(prefix="torch-extensions-")
os.environ["TORCH_EXTENSIONS_DIR"] = EXTENSIONS.name

# Megatron-Core 0.19 is written for Python 3.12, and needs nothing of it but this name; PyTorch comes for 3.11.
if not hasattr(typing, "override"):
    typing.override = lambda method: method
