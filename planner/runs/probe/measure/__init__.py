"""The program that measures: modules that import nothing of this project but each other, and PyTorch."""
