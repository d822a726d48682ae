"""What a rollout in Docker cannot do without, straight on the Engine API: `docker_floor.py TASK COUNT CONCURRENCY`."""

from __future__ import annotations

import io
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker

IMAGE = "debian:bookworm-slim"


def main(task: Path, count: int, concurrency: int) -> None:
    """Print the seconds it takes."""
    began = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(_floor, [task] * count))
    print(time.perf_counter() - began)


def _floor(task: Path) -> None:
    """Create, start, put an archive, two execs, get an archive, remove."""
    client = docker.APIClient(version="auto")
    container = client.create_container(IMAGE, ["sleep", "infinity"], working_dir="/app")["Id"]
    try:
        client.start(container)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(task / "solution", "solution")
            tar.add(task / "tests", "tests")
        client.put_archive(container, "/", packed.getvalue())
        for script in ("bash /solution/solve.sh", "mkdir -p /logs/verifier && bash /tests/test.sh"):
            client.exec_start(client.exec_create(container, ["bash", "-c", script])["Id"])
        stream, _ = client.get_archive(container, "/logs/verifier/reward.txt")
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            reward = tar.extractfile("reward.txt")
            assert reward is not None
            assert reward.read() == b"1\n"
    finally:
        client.remove_container(container, force=True)
        client.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
