"""Odd but legal Dockerfiles mean the same in Docker and in the local sandbox."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pytest_benchflow.sandboxes import Sandbox, SandboxSpec

Start = Callable[..., Awaitable[Sandbox]]
Context = Callable[..., Path]

DOCKERFILE = r"""# escape=\
# A directive, and this is none.
ARG TAG=bookworm-slim
FROM debian:${TAG:-none} AS Build
ARG TAG
ARG WORDS="two words" MORE=$TAG
ENV A=1
ENV A=2 B=$A C="q $A" D='q $A' E=a\ b F=\$A
ENV OLD  the old   form $A
ENV G="tab	tab" H=${A:+set} I=${NONE:-unset}
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN echo "$TAG|$WORDS|$MORE" >/args \
# a comment in between

    && false | true || echo bash >>/args
WORKDIR /src
WORKDIR sub/
RUN mkdir -p d/e && echo f >d/f && ln -s f d/link && ln -s nowhere d/dangling && chown -R 33:34 d && chmod 6755 d/f
from build
ARG TARGETARCH
RUN echo "${TARGETARCH:+known} [$TAG]" >>/args; rm -rf /src/sub/d/e /etc/skel; mkdir /etc/skel
	run ["sh", "-c", "echo $A >>/args"]
RUN ['x' = 'x'] || echo shell form >>/args # a comment of the shell
COPY --from=0 src/sub/d/f /src/sub/d /from/
COPY . all
COPY --chown=7:8 tree /made/
COPY --chown=7:8 a.txt /deep/er/file
COPY alias tree/file ./
COPY [ "two words", "/two words" ]
COPY [at]*.txt none* [^a-s]r* /globbed/
ADD packed.tar.gz no-archive.gz empty.tar /added/
WORKDIR /gone
RUN ln -s /src/target /src/alias; touch /src/target
COPY a.txt /src/alias
WORKDIR /src
RUN rm -r /gone
COPY --from=0 src/sub/d/[f]* /from/fit/
HEALTHCHECK --interval=1s CMD exit 1
HEALTHCHECK --interval=1s CMD [ -e /src ]
LABEL a=b \
  c=d
USER 1234:5
WORKDIR /after
RUN id -u >/tmp/who; id -g >>/tmp/who; pwd >>/tmp/who"""
LOOK = r"""
cat /args /tmp/who; echo "$A|$B|$C|$D|$E|$F|$OLD|$G|$H|$I"; pwd; id -u
ls -A /etc/skel | wc -l
cd /; ls -d gone 2>/dev/null
find from src made deep globbed added after 'two words' | sort | xargs -d '\n' stat -c '%N %a %u:%g %F'
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="owners differ in a user's local sandbox")
async def test_a_dockerfile_full_of_oddities_means_the_same(start: Start, context: Context) -> None:
    from pytest_benchflow.sandboxes.local.backend import LocalBackend

    directory = context(DOCKERFILE.replace("\n    &&", "\r\n    &&"))
    write_files(directory)
    docker = await start(environment_dir=directory)
    backend = LocalBackend()
    try:
        local = backend.create(SandboxSpec("test", environment_dir=directory))
        await local.start()
        seen, expected = await local.exec(LOOK), await docker.exec(LOOK)
    finally:
        await backend.aclose()
    assert expected.stderr == ""
    assert seen.stdout.splitlines() == expected.stdout.splitlines()


def write_files(top: Path) -> None:
    """Fill a build context with what is easy to get wrong."""
    ignored = ["*.log", "!keep.log", "**/tmp", "deep", "!deep/keep", "/rooted", "x[12]", "x[!4]", "# no", "Dockerfile"]
    (top / ".dockerignore").write_text("\n".join(ignored))
    (top / "empty").mkdir()
    names = "a.txt b.log keep.log t.txt tmp deep/drop deep/keep rooted sub/rooted sub/tmp x1 x3 x4 tree/file tree/sub/g"
    for name in (*names.split(), "two words", "no-archive.gz"):
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text(name)
    (top / "tree/file").chmod(0o750)
    (top / "tree/sub").chmod(0o705)
    (top / "tree/out").symlink_to("/etc/passwd")
    (top / "alias").symlink_to("tree/file")
    with tarfile.open(top / "packed.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("in/side")
        info.size, info.mode, info.uid, info.gid = 2, 0o640, 7, 8
        tar.addfile(info, io.BytesIO(b"ok"))
        info.name = "../climbs"
        tar.addfile(info, io.BytesIO(b"ok"))
    tarfile.open(top / "empty.tar", "w").close()
