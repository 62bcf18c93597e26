"""The command line: ``plan --model 175b --gpus 12288``.

stdout carries the answer, stderr the talk. Nothing heavier than click is imported before a command needs it.
"""

import sys

try:
    from planner.cli.app import main
except KeyboardInterrupt:  # before there is anything to end
    sys.stderr.write("plan: interrupted\n")
    sys.exit(130)

__all__ = ["main"]
