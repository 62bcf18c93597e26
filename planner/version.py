"""The version, once; the distribution's metadata must agree (tested)."""

VERSION = "0.1.0"
