"""ms-swift on Transformers: ``swift sft``, ``swift pt`` and ``swift rlhf``."""
