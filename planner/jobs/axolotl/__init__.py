"""axolotl: its YAML."""
