"""What is trained: sizes and kinds of layer of a model, its parameters and its FLOPs.

In: a catalogue name, a TOML or JSON table, or a Hugging Face ``config.json``. Out: a `Model`, counts of parameters
and FLOPs. Imports: primitives and below.
"""
