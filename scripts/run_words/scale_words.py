"""Who finds and shares the scales of 8-bit products in a measured run, by the release that its words name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from run_words import heard as re

Row = Mapping[str, Any]

BY_MODULE: Final = 10
"""Small kernels of a module's own update until Transformer Engine 1.3: what its authors count [TE-scales]."""
HIDDEN: Final = {"shared_magnitudes": "none"}
"""Shared beside computation, or not at all."""
WIDE: Final = {"fp8_param_gather": False}
"""Before there were weights in 8 bits (``FP8_PARAMS`` of round 4.0)."""
TENSOR: Final = {"shared_magnitudes": "tensor"}

RELEASES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    # Transformer Engine 0.8 (Dockerfile); magnitudes are shared over data ranks too, at once.
    (r"mlperf training v3\.0 .*nvidia", {"scale_kernels": BY_MODULE, **WIDE}),
    # 1.0 of September 2023, NVTE_DP_AMAX_REDUCE_INTERVAL=0 and NVTE_ASYNC_AMAX_REDUCTION=1 (config_common.sh).
    (r"mlperf training v3\.1 .*(nvidia|azure)", {"scale_kernels": BY_MODULE, **HIDDEN, **WIDE}),
    # tp_only_amax_red (conf/custom.yaml).
    (r"mlperf training v(4\.1|5\.\d) ", TENSOR),
    # The container of May 2024, whose Transformer Engine 1.6.0.dev0 still heeds the variables of launch.sh, as v3.1.
    (r"dgxc-benchmarking v(24\.11|25\.01)[.\d]*, gpt3", HIDDEN),
    # tp_only_amax_red (scripts/performance/llm/pretrain_gpt3_175b.py from NeMo 2.2 on).
    (r"dgxc-benchmarking v25\.(0[4-9]|1\d)[.\d]*, gpt3", TENSOR),
)
"""First match of the source (lower case) and what its scripts or containers settle [MLPerf] [dgxc-bench]."""
CORE_08: Final = r"nemo 24\.07|megatron-core (core_)?v?0\.8"
"""Megatron-Core 0.8 shares over tensor and context ranks; 0.9 takes that back (commits 2e429097d and 98abe3786)."""
COMPOSER: Final = r"llm[- ]?foundry|composer"
"""Its tables for H100 are of 2023: modules that scale for themselves, one context around the model and all ranks."""


def scale_changes(row: Row) -> dict[str, Any]:
    """Fields of the stack that the release of a run settles; nothing where its own words name none."""
    source, framework = str(row.get("source")).lower(), str(row["stack"].get("framework")).lower()
    if re.search(COMPOSER, framework):
        return {"scale_kernels": BY_MODULE, "shared_magnitudes": "data"}
    if re.search(CORE_08, framework):
        return dict(TENSOR)
    return next((dict(fields) for words, fields in RELEASES if re.search(words, source)), {})
