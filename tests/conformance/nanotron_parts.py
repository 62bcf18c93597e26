"""nanotron with stand-ins: its release imports its logging in a circle, and its models ask for flash-attn.

Its parser, its groups and its cut of a pipeline are its own. ``NANOTRON_SOURCE``, a checkout's ``src`` folder, is read
instead of the release where it is set.
"""

import importlib.machinery
import logging
import os
import sys
import types

SOURCE = os.environ.get("NANOTRON_SOURCE", "")
_FLASH = ("", ".bert_padding", ".flash_attn_interface", ".layers", ".layers.rotary", ".modules",
          ".modules.mha", ".ops", ".ops.triton", ".ops.triton.layer_norm")  # fmt: skip


class _StandIn(types.ModuleType):
    """A module whose every name is something to call, or one of logging's."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(logging, name, _nothing)


def _nothing(*_arguments, **_named):
    return None


def _stand_in(name):
    module = _StandIn(name)
    module.__spec__, module.__path__ = importlib.machinery.ModuleSpec(name, None), []
    sys.modules[name] = module
    return module


def load():
    """(nanotron.config, nanotron.models.base, nanotron.models.llama or .qwen, nanotron.parallel)."""
    if SOURCE:
        sys.path.insert(0, SOURCE)
    for name in (*(f"flash_attn{name}" for name in _FLASH), "grouped_gemm", "grouped_gemm.ops"):
        _stand_in(name).__version__ = "2.8.0"
    sys.modules["flash_attn.layers.rotary"].RotaryEmbedding = object
    quiet = _stand_in("nanotron.logging")
    quiet.get_logger = logging.getLogger
    quiet.LogMixin = quiet.LoggingCollectorMixin = type("Mixin", (), {})
    import nanotron

    nanotron.logging = quiet
    import nanotron.config
    import nanotron.models.base
    import nanotron.parallel

    model = "qwen" if SOURCE else "llama"
    return (
        nanotron.config,
        nanotron.models.base,
        importlib.import_module(f"nanotron.models.{model}"),
        nanotron.parallel,
    )
