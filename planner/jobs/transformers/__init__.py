"""Hugging Face's TrainingArguments, on a command line or in a file, and what makes a job of them."""
