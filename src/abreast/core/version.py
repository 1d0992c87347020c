"""The version of abreast."""

VERSION = "0.1.0.dev0"
