"""The command line: ``plan --model 175b --gpus 12288``.

In: words of the command line, files, ``PLAN_`` variables. Out: the answer on stdout, the talk on stderr, an exit code
(``ending``). Imports: all of the planner; click, rich, uvicorn. Nothing heavier than click is imported before a command
needs it.
"""

import atexit
import gc
import os
import sys

from planner.processes import ONE_THREAD

# A command leaves few cycles. Looking for them takes a tenth of a short one's time, and as much again when it ends.
gc.set_threshold(200_000, 20, 100)
atexit.register(gc.freeze)
# Before numpy is loaded, which reads it once; what the user set stands.
os.environ |= ONE_THREAD | os.environ

try:
    from planner.cli.app import main
except KeyboardInterrupt:  # before there is anything to end
    sys.stderr.write("plan: interrupted\n")
    sys.exit(130)

__all__ = ["main"]
