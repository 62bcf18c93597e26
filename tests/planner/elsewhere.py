"""What tests do in other processes, which load this module and so little else."""

import os
import signal


def squared(number):
    if number < 0:
        raise ValueError(f"{number} is negative")
    if number > 99:
        os._exit(3)
    return number * number, os.getpid()


def deaf(_item):
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
