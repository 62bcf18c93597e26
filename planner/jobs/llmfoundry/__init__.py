"""llm-foundry: YAML of MPT and of Transformers' models under Composer and FSDP, as questions."""
