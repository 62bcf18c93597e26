"""What every conformance test needs before its framework is imported."""

import os
import tempfile

# torch builds extensions under the home folder, behind a lock file that a killed run leaves, and waits for it for ever.
EXTENSIONS = tempfile.TemporaryDirectory(prefix="torch-extensions-")
os.environ["TORCH_EXTENSIONS_DIR"] = EXTENSIONS.name
