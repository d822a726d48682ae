"""Agent benchmark tasks as pytest items."""
