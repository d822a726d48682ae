"""The `bf` command: what is useful beside pytest itself."""
