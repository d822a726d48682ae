"""What everything else stands on: errors, settings, text, files, processes, secrets. It imports nothing of ours."""
