"""What is not stopped yet, by sandbox; a defence that lands turns its entry red until it is removed."""

from __future__ import annotations

_LOCAL = """
    answer-is-a-link-as-agent answer-link-out-and-out-as-agent cache-is-a-link-as-agent cache-that-fits-as-agent
    conftest-beside-tests-as-agent conftest-for-the-next-step-as-agent conftest-is-a-link-as-agent
    conftest-read-only-as-agent editable-install-as-agent git-filter-as-agent git-fsmonitor-as-agent
    git-hook-as-agent ini-loads-a-plugin-as-agent interpreter-replaced-as-root leader-is-a-zombie-as-agent
    makefile-before-makefile-as-agent node-modules-changed-as-agent plugin-metadata-in-workspace-as-agent
    preload-file-as-root profile-of-root-as-root pythonpath-of-the-image-as-agent
    round-plants-a-conftest-as-agent separate-conftest-as-agent shadow-_pytest-__init__-pytest-m-as-agent
    shadow-compiled-module-as-agent shadow-json-inline-as-agent shell-replaced-as-root
    sitecustomize-of-the-system-as-root standard-library-changed-as-root started-again-by-a-service-as-agent
    test-runner-replaced-as-root toml-loads-a-plugin-as-agent user-site-of-the-verifier-as-agent
    variable-bash-env-as-agent variable-home-as-agent variable-ld-preload-as-agent variable-path-as-agent
    variable-pytest-addopts-as-agent venv-python-replaced-as-agent
"""
_DOCKER = """
    answer-is-a-link-as-agent answer-link-out-and-out-as-agent cache-is-a-link-as-agent cache-that-fits-as-agent
    conftest-beside-tests-as-agent conftest-for-the-next-step-as-agent conftest-is-a-link-as-agent
    conftest-read-only-as-agent editable-install-as-agent git-filter-as-agent git-fsmonitor-as-agent
    git-hook-as-agent ini-loads-a-plugin-as-agent interpreter-replaced-as-root leader-is-a-zombie-as-agent
    makefile-before-makefile-as-agent node-modules-changed-as-agent plugin-metadata-in-workspace-as-agent
    preload-file-as-root profile-of-root-as-root pythonpath-of-the-image-as-agent
    round-plants-a-conftest-as-agent separate-conftest-as-agent shadow-_pytest-__init__-pytest-m-as-agent
    shadow-compiled-module-as-agent shadow-json-inline-as-agent shell-replaced-as-root
    standard-library-changed-as-root started-again-by-a-service-as-agent test-runner-replaced-as-root
    toml-loads-a-plugin-as-agent user-site-of-the-verifier-as-agent variable-bash-env-as-agent
    variable-home-as-agent variable-ld-preload-as-agent variable-path-as-agent variable-pytest-addopts-as-agent
    venv-python-replaced-as-agent
"""

KNOWN = {"local": frozenset(_LOCAL.split()), "docker": frozenset(_DOCKER.split())}
