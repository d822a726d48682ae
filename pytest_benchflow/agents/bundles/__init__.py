"""Agents installed once on the host, each with its own runtime under one relocatable prefix.

bundle = await BundleStore().provide(BundleSpec("gemini", "0.61.0", node="22.23.3",
                                                npm=("@google/gemini-cli@0.61.0",), programs=("gemini",)))
sandbox = backend.create(SandboxSpec("s", mounts=(bundle.mount(),)))
await sandbox.start()
prefix = await bundle.put_in(sandbox)
process = await sandbox.open_process([f"{prefix}/bin/gemini", "--acp"])"""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
