"""Code that runs inside the sandbox helper: standard library only, nothing of the package but what is as bare.

It is loaded by a bare interpreter as the top-level package `guest`, before the sandbox's root replaces the host's,
so every module must be imported up front and import only its siblings.
"""
