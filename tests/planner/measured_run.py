"""A measured run as a file has it, made up, and what of it a test wants otherwise."""

import copy

RUN = {
    "id": "one",
    "group": "made-up",
    "source": "a test",
    "complete": True,
    "cluster": {"accelerator": "a100-sxm-80gb", "gpus_per_node": 8, "inter_node": "8x HDR 200 Gb/s"},
    "stack": {"framework": "Megatron-Core", "attention": True},
    "model": {
        "name": "GPT", "kind": "dense", "num_layers": 24, "hidden_size": 2048, "num_heads": 16, "num_query_groups": 16,
        "ffn_hidden_size": 8192, "gated_ffn": False, "vocab_size": 51200, "seq_length": 2048, "tied_embeddings": True,
        "position": "learned",
    },
    "strategy": {
        "gpus": 16, "tp": 2, "cp": 1, "pp": 2, "vpp": 2, "dp": 4, "ep": 1, "zero_stage": 1, "sharding_degree": 4,
        "micro_batch_size": 2, "global_batch_size": 64, "sequence_parallel": True, "schedule": "interleaved-1f1b",
        "precision": "bf16", "recompute": "full",
    },
    "measured": {"iteration_time_s": 2.0},
}  # fmt: skip


def run(**changes):
    """The run with some of its sections' entries changed."""
    row = copy.deepcopy(RUN)
    for name, value in changes.items():
        if isinstance(value, dict):
            row[name] |= value
        else:
            row[name] = value
    return row


def only(verdicts, metric):
    """The verdict on one metric."""
    return next(verdict for verdict in verdicts if verdict.metric == metric)
