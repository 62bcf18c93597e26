"""Hugging Face configurations so small that a model of them is made in no time."""


def small(model_type, **changes):
    """The configuration of a family with the fields that nearly all of them have."""
    return {
        "model_type": model_type,
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 176,
        "vocab_size": 512,
        "max_position_embeddings": 128,
    } | changes
