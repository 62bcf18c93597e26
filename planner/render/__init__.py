"""What a person sees: the terminal, a page, a trace, the catalogue.

In: records of answers. Out: text, HTML, JSON. Imports: analyses and below. The terminal package alone imports rich.
"""
