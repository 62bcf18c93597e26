"""The command line: ``plan --model 175b --gpus 12288``.

stdout carries the answer, stderr the talk. Nothing heavier than click is imported before a command needs it.
"""

from planner.cli.app import main

__all__ = ["main"]
