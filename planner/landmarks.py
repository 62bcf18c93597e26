"""Published training runs that people compare with: (source, billions of parameters, GPUs, accelerator, result)."""

from __future__ import annotations

LANDMARKS: tuple[tuple[str, float, int, str, str], ...] = (
    ("MegaScale, NSDI 2024", 175.0, 12288, "a100-sxm-80gb", "55.2 % MFU"),
    ("MegaScale, NSDI 2024", 175.0, 1024, "a100-sxm-80gb", "59.0 % MFU"),
    ("Megatron-LM in MegaScale, NSDI 2024", 175.0, 256, "a100-sxm-80gb", "53.0 % MFU"),
    ("MegaScale, NSDI 2024", 530.0, 11200, "a100-sxm-80gb", "54.3 % MFU"),
    ("Narayanan et al., SC 2021", 1.7, 32, "a100-sxm-80gb", "44 % of peak, recomputation counted"),
    ("Narayanan et al., SC 2021", 7.5, 128, "a100-sxm-80gb", "46 % of peak, recomputation counted"),
    ("Narayanan et al., SC 2021", 39.1, 512, "a100-sxm-80gb", "47 % of peak, recomputation counted"),
    ("Narayanan et al., SC 2021", 1008.0, 3072, "a100-sxm-80gb", "52 % of peak, recomputation counted"),
    ("Korthikanti et al., 2022", 22.0, 8, "a100-sxm-80gb", "1.10 s per iteration"),
    ("Korthikanti et al., 2022", 175.0, 64, "a100-sxm-80gb", "13.75 s per iteration"),
    ("Korthikanti et al., 2022", 530.0, 280, "a100-sxm-80gb", "37.83 s per iteration"),
    ("Korthikanti et al., 2022", 1000.0, 512, "a100-sxm-80gb", "71.49 s per iteration"),
    ("Yuan 1.0, 2021", 245.7, 2128, "a100-sxm-40gb", "44.8 % of peak, recomputation counted"),
    ("BigScience BLOOM, 2022", 176.0, 384, "a100-sxm-80gb", "about 150 TFLOP/s per GPU"),
)
