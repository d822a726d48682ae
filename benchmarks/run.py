"""Run all benchmarks: `make bench`, or `python benchmarks/run.py collection.collecting` for some of them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import acp_session
import agent_start
import collection
import docker_rollouts
import engine
import hardening
import html_report
import local_sandboxes
import peers
import rollouts
import workers

BENCHMARKS = {
    "collection.collecting": collection.collecting,
    "collection.overhead": collection.overhead,
    "rollouts.local": rollouts.local,
    "engine.in_flight": engine.in_flight,
    "engine.overhead": engine.overhead,
    "engine.peers": peers.overhead,
    "engine.many": engine.many,
    "engine.longest_first": engine.longest_first,
    "workers.thin": workers.thin,
    "local.sandboxes": local_sandboxes.sandboxes,
    "acp.session": acp_session.session,
    "docker.rollouts": docker_rollouts.rollouts,
    "html.report": html_report.report,
    "agents.start": agent_start.start,
    "hardening.local": hardening.local,
    "hardening.docker": hardening.docker,
}


def main(names: list[str]) -> None:
    """Run each benchmark in a scratch directory of its own."""
    if unknown := sorted({*names} - {*BENCHMARKS}):
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    for name in names or BENCHMARKS:
        print(f"== {name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="benchflow-bench-") as scratch:
            BENCHMARKS[name](Path(scratch))


if __name__ == "__main__":
    main(sys.argv[1:])
