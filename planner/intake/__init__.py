"""Configurations that run already, as questions: what each file says becomes fields and pins of a request."""
