"""The Python face: running rollouts without pytest, and the names of older releases."""
