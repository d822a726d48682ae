"""What the whole repository's tests share."""

pytest_plugins = ["pytester"]
