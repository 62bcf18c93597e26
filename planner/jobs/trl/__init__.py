"""TRL: its commands, and the recipes of options that projects on it keep."""
