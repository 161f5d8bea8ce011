"""The commands of `aicf`, one file each; `aicf.tools.aicf_cli` puts them together."""
