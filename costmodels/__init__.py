"""What a given strategy costs: seconds per term, bytes per stage, days and money per training run.

In: strategies as columns and a `Scenario` (model, node group, stack, batch). Out: arrays over strategies. It neither
chooses nor prints. Imports: hardware.

Keys in brackets are spelled out in REFERENCES.md; in short::

    [Shoeybi19] Megatron-LM, arXiv 1909.08053            [Rajbhandari20] ZeRO, SC 2020, arXiv 1910.02054
    [Narayanan21] PTD-P, SC 2021, arXiv 2104.04473       [Korthikanti22] Sequence parallelism, arXiv 2205.05198
    [Zhao23] PyTorch FSDP, VLDB 2023, arXiv 2304.11277   [Yeung24] Vocabulary parallelism, arXiv 2411.05288
    [Galvatron] VLDB 2023, arXiv 2211.13878              [NCCL-tuning] NVIDIA/nccl, src/graph/tuning.cc
    [Liu23] Ring attention, arXiv 2310.01889             [Jacobs23] DeepSpeed-Ulysses, arXiv 2309.14509
    [Fang24] USP, arXiv 2405.07719                       [Dubey24] Llama 3, arXiv 2407.21783
    [Zhang22] MiCS, VLDB 2022, arXiv 2205.00119          [Wang23] ZeRO++, arXiv 2306.10209
    [Liger] Liger-Kernel benchmarks                      [aiconfigurator], [simumax] measured kernel tables
    [Ren21] ZeRO-Offload, arXiv 2101.06840               [Rajbhandari21] ZeRO-Infinity, arXiv 2104.07857
    [TE] Transformer Engine documentation                [TorchAO] PyTorch ao, float8 training
    [Dettmers21] Block-wise optimizers, 2110.02861         [Moonlight25] Muon, arXiv 2502.16982
    [You20] LAMB, arXiv 1904.00962                       [Shazeer18] Adafactor, arXiv 1804.04235
    [Li14] Parameter server, OSDI 2014                   [Zhao20] Hierarchical GPU parameter server, arXiv 2003.05622
    [Liu21] HeterPS, arXiv 2111.10635                    [Xu21] GSPMD, arXiv 2105.04663
    [Beltagy20] Longformer, arXiv 2004.05150             [LamyPoirier22] Breadth-first pipelines, arXiv 2211.05953
    [MegatronMoE26] Experts in Megatron Core, 2026       [Huang19] GPipe, arXiv 1811.06965
    [NarayananBW21] PipeDream-2BW, arXiv 2006.09503      [Dao22] FlashAttention, arXiv 2205.14135
    [Shah24] FlashAttention-3, arXiv 2407.08608          [Chowdhery22] PaLM, arXiv 2204.02311
    [Wu21] Yuan 1.0 and 2.0, arXiv 2110.04725            [FusedSoftmax] Megatron-LM, megatron/model/fused_softmax.py
    [FSDP1] PyTorch, torch/distributed/fsdp              [MFSDP] Megatron-FSDP, its guide
    [Splash] JAX, pallas/ops/tpu/splash_attention        [MaxText] GitHub AI-Hypercomputer/maxtext
    [Hu21] LoRA, arXiv 2106.09685                        [Dettmers23] QLoRA, arXiv 2305.14314
    [MinCut] PyTorch, torch/_functorch/partitioners.py   [Lepikhin20] GShard, arXiv 2006.16668
    [DeepSeek24] DeepSeek-V3, arXiv 2412.19437           [Jiang24] MegaScale, arXiv 2402.15627
"""
