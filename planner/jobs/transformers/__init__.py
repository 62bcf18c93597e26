"""Hugging Face's TrainingArguments and Trainer: command lines and files, what makes a job of them, what runs print."""
