"""Shell scripts, read without running them.

In: a script, what the user says of its variables and arguments, and other files of the job. Out: the command lines
that start a training, with every word evaluated, and what is not known of them. The grammar is tree-sitter-bash's,
loaded when the first script is read.
"""

from planner.jobs.shell.script import Script, read_script

__all__ = ["Script", "read_script"]
