"""Environments built from Dockerfiles, and the cache of their layers."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from sandbox_helpers import StartSandbox, needs_users, only_root, output

from pytest_benchflow.core.errors import BenchflowError, BuildError, SandboxError, UnsupportedError
from pytest_benchflow.sandboxes import SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend
from pytest_benchflow.sandboxes.local.cleanup import LocalLayers, LocalLeftovers

Write = Callable[..., Path]


@pytest.fixture
def environment(tmp_path: Path) -> Write:
    """Give the function that writes a build context."""

    def write(dockerfile: str, **files: str) -> Path:
        directory = tmp_path / "environment"
        directory.mkdir(exist_ok=True)
        (directory / "Dockerfile").write_text(dockerfile)
        for name, text in files.items():
            (directory / name).write_text(text)
        return directory

    return write


def layers(cache: Path) -> set[str]:
    """List the finished layers and anything half finished."""
    return {path.name for path in cache.glob("layers/*") if path.is_dir()}


def unfinished(cache: Path) -> list[str]:
    """List what builders that failed would leave; a replaced layer stays until its process is gone."""
    return [name for name in layers(cache) if name.startswith("tmp-") and not name.endswith("-replaced")]


async def test_settings_hold_for_every_command(start: StartSandbox, environment: Write) -> None:
    directory = environment('FROM debian:12\nARG N=3\nENV GREETING="hi $N" X=y\nWORKDIR /srv/app\nWORKDIR sub\n')
    sandbox = await start(environment_dir=directory)
    assert sandbox.workdir == "/srv/app/sub"
    assert await output(sandbox, "pwd; echo $GREETING $X") == "/srv/app/sub\nhi 3 y\n"
    assert [note for note in sandbox.notes if note.startswith("FROM debian:12 is ")]


async def test_the_images_path_keeps_the_systems(start: StartSandbox, environment: Write) -> None:
    sandbox = await start(environment_dir=environment("FROM scratch\nENV PATH=/mine/bin:$PATH\n"))
    assert (await output(sandbox, "echo $PATH; ls /usr > /dev/null && echo found")).split()[1:] == ["found"]
    assert (await output(sandbox, "echo $PATH")).startswith("/mine/bin:/usr/local/sbin:")


async def test_the_spec_overrides_the_image(start: StartSandbox, environment: Write) -> None:
    directory = environment("FROM scratch\nENV A=image B=image\nWORKDIR /image\n")
    sandbox = await start(environment_dir=directory, env={"A": "spec"}, workdir="/spec")
    assert await output(sandbox, "pwd; echo $A $B; ls -d /image", env={"B": "call"}) == "/spec\nspec call\n/image\n"


async def test_metadata_needs_no_layer(start: StartSandbox, environment: Write, cache: Path) -> None:
    await start()
    before = layers(cache)
    await start(environment_dir=environment("FROM scratch\nENV A=1\nWORKDIR /w\nCMD run\nEXPOSE 80\n"))
    assert layers(cache) == before


async def test_run_keeps_what_it_writes_anywhere(start: StartSandbox, environment: Write) -> None:
    directory = environment(
        "FROM scratch\nWORKDIR /w\nRUN echo 1 > /usr/local/one && echo 2 > /etc/two && echo 3 > /root/three \\\n"
        "    && echo 4 > four && rm -rf /usr/share/misc /etc/profile\n"
        'RUN ["/bin/sh", "-c", "cat /usr/local/one > five"]\n'
    )
    sandbox = await start(environment_dir=directory)
    shown = await output(
        sandbox, "cat /usr/local/one /etc/two /root/three /w/four /w/five; ls /etc/profile /usr/share/misc"
    )
    assert shown.startswith("1\n2\n3\n4\n1\n")
    assert shown.count("No such file") == 2


async def test_shell_and_args_reach_run(start: StartSandbox, environment: Write) -> None:
    directory = environment(
        'FROM scratch\nARG WHO=me\nSHELL ["/bin/bash", "-c"]\nRUN [[ $WHO == m* ]] && echo $WHO > /who\n'
    )
    sandbox = await start(environment_dir=directory)
    assert await output(sandbox, "cat /who; echo [$WHO]") == "me\n[]\n"


async def test_copy_places_files_as_docker_does(start: StartSandbox, environment: Write) -> None:
    directory = environment(
        "FROM scratch\nWORKDIR /app\nCOPY a.txt .\nCOPY a.txt /renamed\nCOPY alias b.txt /many/\nCOPY tree /flat\n"
        "COPY *.txt globbed/\nRUN mkdir /there\nCOPY a.txt /there\nCOPY --chmod=640 a.txt /moded\n",
        **{"a.txt": "a", "b.txt": "b"},
    )
    (directory / "tree/sub").mkdir(parents=True)
    (directory / "tree/sub/file").write_text("deep")
    (directory / "tree/link").symlink_to("sub/file")
    (directory / "alias").symlink_to("a.txt")
    sandbox = await start(environment_dir=directory)
    assert (await output(sandbox, "ls /app /many /flat /app/globbed")).split() == [
        *("/app:", "a.txt", "globbed", "/app/globbed:", "a.txt", "b.txt"),
        *("/flat:", "link", "sub", "/many:", "alias", "b.txt"),
    ]
    assert await output(sandbox, "stat -c %F /many/alias") == "regular file\n"
    assert await output(sandbox, "cat /renamed /there/a.txt /flat/link; readlink /flat/link") == "aadeepsub/file\n"
    assert await output(sandbox, "stat -c %a:%U /moded") == "640:root\n"


async def test_add_unpacks_local_archives(start: StartSandbox, environment: Write) -> None:
    directory = environment("FROM scratch\nADD data.tar.gz /data/\nADD plain.txt /data/\n", **{"plain.txt": "p"})
    with tarfile.open(directory / "data.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("in/side.txt")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"ok"))
    assert await output(await start(environment_dir=directory), "cat /data/in/side.txt /data/plain.txt") == "okp"


@needs_users
async def test_chown_uses_the_images_own_accounts(start: StartSandbox, environment: Write) -> None:
    directory = environment("FROM scratch\nRUN useradd -u 1600 worker\nCOPY --chown=worker:daemon a /a\n", a="a")
    assert await output(await start(environment_dir=directory), "stat -c '%U %G' /a") == "worker daemon\n"


@needs_users
async def test_chown_holds_for_directories_that_copy_makes(start: StartSandbox, environment: Write) -> None:
    directory = environment("FROM scratch\nRUN mkdir /old\nCOPY --chown=7:8 src /new/src\nCOPY --chown=7:8 src /old/\n")
    (directory / "src/sub").mkdir(parents=True)
    sandbox = await start(environment_dir=directory)
    assert await output(sandbox, "stat -c %u:%g /new /new/src /new/src/sub /old/sub") == "7:8\n" * 4
    assert await output(sandbox, "stat -c %u:%g /old") == "0:0\n"


@needs_users
async def test_what_comes_from_a_stage_keeps_its_owner(start: StartSandbox, environment: Write) -> None:
    text = "FROM scratch AS a\nRUN mkdir -p /d/e && touch /d/f && chown -R 7:8 /d && chmod 4755 /d/f\nFROM scratch\n"
    text += "COPY --from=a /d /d\nCOPY --from=a --chown=9 /d/f /f\n"
    sandbox = await start(environment_dir=environment(text))
    assert await output(sandbox, "stat -c '%u:%g %a' /d/e /d/f /f") == "7:8 755\n7:8 4755\n9:9 4755\n"


async def test_ignored_files_stay_out(start: StartSandbox, environment: Write) -> None:
    directory = environment("FROM scratch\nCOPY . /all\n", keep="k", **{"drop.log": "d", "keep.log": "k"})
    (directory / ".dockerignore").write_text("# comment\n*.log\n!keep.log\nDockerfile\n.dockerignore\n")
    assert (await output(await start(environment_dir=directory), "ls -A /all")).split() == ["keep", "keep.log"]


async def test_a_list_of_what_to_keep_keeps_just_that(start: StartSandbox, environment: Write) -> None:
    directory = environment(
        "FROM scratch\nCOPY . /all\nCOPY deep /deep\n", drop="d", **{".dockerignore": "*\n!deep/keep\n"}
    )
    (directory / "deep").mkdir()
    for name in ("keep", "drop"):
        (directory / "deep" / name).write_text(name)
    assert (
        await output(await start(environment_dir=directory), "find /all /deep -type f")
        == "/all/deep/keep\n/deep/keep\n"
    )


async def test_a_layer_in_use_is_no_leftover(start: StartSandbox, environment: Write, cache: Path) -> None:
    await start()
    text = f"FROM scratch\nRUN echo {uuid.uuid4()} > /x\n"
    before = layers(cache)
    sandbox = await start(environment_dir=environment(text))
    (layer,) = layers(cache) - before
    for used in (True, False):
        (leftover,) = (item for item in await LocalLayers(0.0).find() if item.name == layer)
        assert leftover.abandoned is not used
        await sandbox.stop()
    (cache / "layers" / layer).rename(cache / "layers" / "kept")
    (cache / "layers" / layer).write_text("no directory")
    assert len(await output(await start(environment_dir=environment(text)), "cat /x")) == 37


async def test_a_second_build_runs_nothing(start: StartSandbox, environment: Write) -> None:
    directory = environment("FROM scratch\nRUN date +%N > /stamp; head -c 8 /dev/urandom | od -x >> /stamp\n")
    first = await output(await start(environment_dir=directory), "cat /stamp")
    assert await output(await start(environment_dir=directory), "cat /stamp") == first


async def test_force_build_runs_everything_again(start: StartSandbox, environment: Write) -> None:
    directory = environment("FROM scratch\nRUN head -c 8 /dev/urandom | od -x > /stamp; echo forced\n")
    old = await start(environment_dir=directory)
    first = await output(old, "cat /stamp")
    later = LocalBackend()
    forced = later.create(SandboxSpec("x", environment_dir=directory, force_build=True))
    await forced.start()
    second = await output(forced, "cat /stamp")
    await later.aclose()
    assert second != first
    assert await output(await start(environment_dir=directory), "cat /stamp") == second
    assert await output(old, "cat /stamp") == first


async def test_a_changed_source_is_copied_again(start: StartSandbox, environment: Write) -> None:
    directory = environment("FROM scratch\nCOPY src /src\n")
    source = directory / "src"
    source.mkdir()
    (source / "file").write_text("old")
    (source / "link").symlink_to("file")

    def relink() -> None:
        (source / "link").unlink()
        (source / "link").symlink_to("nowhere")

    changes: dict[str, Callable[[], object]] = {
        "old": lambda: None,
        "new": lambda: (source / "file").write_text("new"),
        "711": lambda: (source / "file").chmod(0o711),
        "renamed": lambda: (source / "file").rename(source / "renamed"),
        "nowhere": relink,
    }
    for expected, change in changes.items():
        change()
        shown = await output(await start(environment_dir=directory), "cd /src; ls; cat *; stat -c %a *; readlink link")
        assert expected in shown


async def test_a_failing_run_shows_line_status_and_output(start: StartSandbox, environment: Write, cache: Path) -> None:
    directory = environment(
        "FROM scratch\nWORKDIR /w\n\nRUN for i in $(seq 50); do echo line $i; done; \\\n  echo oops >&2; exit 7\n"
    )
    await start()
    before = layers(cache)
    with pytest.raises(BuildError) as failure:
        await start(environment_dir=directory)
    lines = str(failure.value).splitlines()
    assert lines[0].startswith("environment/Dockerfile:4: RUN for i in $(seq 50);")
    assert lines[0].endswith("exit status 7")
    assert [line.strip() for line in lines[1:]] == [f"line {i}" for i in range(22, 51)] + ["oops"]
    assert layers(cache) == before


async def test_an_entrypoint_runs_and_may_end_or_swallow_its_command(start: StartSandbox, environment: Write) -> None:
    for text, said in (
        ('ENTRYPOINT ["sh", "-c", "id -un >/said; exec \\"$@\\"", "me"]', "root"),
        ('SHELL ["/bin/bash", "-c"]\nENTRYPOINT echo $BASH_VERSION | cut -c1 >/said', "5"),
        ('ENTRYPOINT ["sh", "-c", "echo $0 $1 >/said"]\nCMD ["x"]', "sh -c"),
        ('ENTRYPOINT ["false"]\nENTRYPOINT []\nRUN echo none >/said', "none"),
    ):
        sandbox = await start(environment_dir=environment(f"FROM scratch\n{text}\n"))
        assert await output(sandbox, "cat /said") == f"{said}\n"
        assert not any("ENTRYPOINT" in note for note in sandbox.notes)


async def test_an_entrypoint_that_never_ends_is_not_waited_for_and_goes_on(
    start: StartSandbox, environment: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_benchflow.sandboxes.startup._ENTRYPOINT_WAIT_SEC", 1)
    text = 'ENTRYPOINT ["sh", "-c", "while :; do echo >>/ticks; echo noise; sleep 0.1; done"]'
    sandbox = await start(environment_dir=environment(f"FROM scratch\n{text}\n"))
    await output(sandbox, "n=$(wc -l </ticks); until [ $(wc -l </ticks) -gt $n ]; do sleep 0.1; done")


async def test_an_entrypoint_that_fails_is_told_with_its_last_line(start: StartSandbox, environment: Write) -> None:
    text = 'FROM scratch\nENTRYPOINT ["sh", "-c", "echo one; echo no $A >&2; exit 3"]\nENV A=b\n'
    with pytest.raises(SandboxError, match=r"ENTRYPOINT of its image ended with status 3 .*: no b; let it end"):
        await start(environment_dir=environment(text))


async def test_a_health_check_is_waited_for_and_may_fail(start: StartSandbox, environment: Write) -> None:
    later = 'FROM scratch\nENTRYPOINT ["sh", "-c", "(sleep 1; touch /up) & exec \\"$@\\"", "me"]\n'
    check = "HEALTHCHECK --interval=1s --timeout=1m0.5s --retries=20 CMD"
    for form in ("test -e /up", '["test", "-e", "/up"]'):
        sandbox = await start(environment_dir=environment(f"{later}{check} {form}\n"))
        assert await output(sandbox, "ls /up") == "/up\n"
        assert not any("HEALTHCHECK" in note for note in sandbox.notes)
    await start(environment_dir=environment("FROM scratch\nHEALTHCHECK CMD false\nHEALTHCHECK NONE\n"))
    for check, said in (
        ("--interval=1s --retries=1 CMD echo no; exit 3", "image failed for 1 s: exit status 3, no; CMD never runs"),
        ("--interval=1d CMD true", "Dockerfile:2: HEALTHCHECK: 1d is not a duration, such as 10s"),
        ("--retries=x CMD true", "Dockerfile:2: HEALTHCHECK --retries=x is not a number"),
        ("curl localhost", "Dockerfile:2: HEALTHCHECK curl localhost is neither HEALTHCHECK CMD"),
    ):
        with pytest.raises(BenchflowError, match=said):
            await start(environment_dir=environment(f"FROM scratch\nHEALTHCHECK {check}\n"))


async def test_a_package_that_the_hosts_release_does_not_have_leads_to_docker(
    start: StartSandbox, environment: Write
) -> None:
    text = "FROM ubuntu:20.04\nRUN echo 'E: Unable to locate package libold15'; exit 100\n"
    with pytest.raises(BuildError, match=r"(?s)Dockerfile:2: .* 100.*; this host is .*; use --bf-sandbox docker"):
        await start(environment_dir=environment(text))


async def test_a_missing_source_names_the_line(start: StartSandbox, environment: Write) -> None:
    with pytest.raises(BuildError, match=r"^environment/Dockerfile:2: COPY nofile: not found in .*/environment$"):
        await start(environment_dir=environment("FROM scratch\nCOPY nofile /x\n"))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to(path.name), "Dockerfile:2: COPY odd: not found in"),
        (os.mkfifo, "Dockerfile:2: COPY odd /x: .*/odd is not a file"),
        (lambda path: path.with_name(".dockerignore").mkdir(), "Dockerfile: cannot read .*/.dockerignore: Is a dir"),
        pytest.param(
            lambda path: path.touch(mode=0),
            "Dockerfile:2: COPY odd /x: cannot read .*/odd: Permission",
            marks=only_root,
        ),
    ],
    ids=["ring", "fifo", "directory", "closed"],
)
async def test_what_cannot_be_read_is_told_with_its_place(
    start: StartSandbox, environment: Write, make: Callable[[Path], None], reason: str
) -> None:
    directory = environment("FROM scratch\nCOPY odd /x\n")
    make(directory / "odd")
    with pytest.raises(BuildError, match=f"^environment/{reason}"):
        await start(environment_dir=directory)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("COPY src /etc/hostname", "File exists"), ("COPY --chown=ghost src /x", "user 'ghost' does not exist")],
)
async def test_a_copy_that_fails_names_its_line(
    start: StartSandbox, environment: Write, line: str, reason: str
) -> None:
    directory = environment(f"FROM scratch\n{line}\n")
    (directory / "src").mkdir()
    with pytest.raises(BuildError, match=rf"^environment/Dockerfile:2: COPY src /\S+: cannot write .*{reason}"):
        await start(environment_dir=directory)


@pytest.mark.parametrize("source", ["../outside", "escape"])
async def test_nothing_outside_the_context_is_copied(start: StartSandbox, environment: Write, source: str) -> None:
    directory = environment(f"FROM scratch\nCOPY {source} /x\n")
    (directory.parent / "outside").write_text("secret")
    (directory / "escape").symlink_to("../outside")
    with pytest.raises(BuildError, match="build context"):
        await start(environment_dir=directory)


async def test_a_slow_build_ends_at_its_timeout(start: StartSandbox, environment: Write, cache: Path) -> None:
    started = time.monotonic()
    with pytest.raises(BuildError, match=r"environment/Dockerfile:2: the build took longer than 0\.5 s"):
        await start(environment_dir=environment("FROM scratch\nRUN sleep 8001\n"), build_timeout_sec=0.5)
    assert time.monotonic() - started < 10
    assert not unfinished(cache)


async def test_a_cancelled_build_leaves_nothing(backend: LocalBackend, environment: Write, cache: Path) -> None:
    sandbox = backend.create(SandboxSpec("x", environment_dir=environment("FROM scratch\nRUN touch /x; sleep 8011\n")))
    task = asyncio.create_task(sandbox.start())
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not unfinished(cache)


async def test_layers_that_nobody_uses_go_at_the_next_build(cache: Path, environment: Write) -> None:
    async def build(text: str) -> str:
        backend = LocalBackend()
        before = layers(cache)
        try:
            sandbox = backend.create(
                SandboxSpec("x", environment_dir=environment(f"FROM scratch\nRUN echo {text} >/x\n"))
            )
            await sandbox.start()
            assert await output(sandbox, "cat /x") == f"{text}\n"
        finally:
            await backend.aclose()
        return next(iter(layers(cache) - before), "")

    unused, used = await build("unused"), await build("used")
    for name in (unused, used):
        os.utime(cache / "layers" / name, (0, time.time() - 31 * 86400))
    assert await build("used") == ""
    await build("another")
    assert unused not in layers(cache)
    assert used in layers(cache)


BUILDER = """
import asyncio, sys
from pathlib import Path
from pytest_benchflow.sandboxes import Limits, SandboxSpec
from pytest_benchflow.sandboxes.local import LocalBackend

async def main():
    sandbox = LocalBackend().create(SandboxSpec("x", environment_dir=Path(sys.argv[1])))
    await sandbox.start()
    print((await sandbox.exec("cat /x")).stdout)

asyncio.run(main())
"""


def test_builders_in_several_processes_build_once(environment: Write, cache: Path) -> None:
    directory = environment(
        "FROM scratch\nRUN sleep 0.5; head -c 8 /dev/urandom | od -x >/x; echo once\nRUN echo $$ >>/x\n"
    )
    command = [sys.executable, "-c", BUILDER, str(directory)]
    before = layers(cache)
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    shown = {builder.communicate(timeout=60)[0] for builder in builders}
    assert len(shown) == 1
    # Each layer once, and none that a later one has replaced.
    assert len(layers(cache) - before) == 2


def test_the_rest_of_a_killed_builder_is_swept_and_built_anew(environment: Write, cache: Path) -> None:
    directory = environment(
        "FROM scratch\nCOPY wait /wait\nRUN echo begun > /x; sleep $(cat /wait); echo done >> /x\n", wait="99"
    )
    builder = subprocess.Popen([sys.executable, "-c", BUILDER, str(directory)])
    deadline = time.monotonic() + 20
    while not list((cache / "layers").glob("tmp-*/root/x")) and time.monotonic() < deadline:
        time.sleep(0.02)
    # Its zygote too, which would tidy up after it.
    for pid in (*map(int, Path(f"/proc/{builder.pid}/task/{builder.pid}/children").read_text().split()), builder.pid):
        os.kill(pid, signal.SIGKILL)
    builder.wait()
    assert unfinished(cache)
    (directory / "wait").write_text("0")

    async def build() -> str:
        backend = LocalBackend()
        sandbox = backend.create(SandboxSpec("x", environment_dir=directory))
        await sandbox.start()
        shown = await output(sandbox, "cat /x")
        await backend.aclose()
        return shown

    assert asyncio.run(build()) == "begun\ndone\n"
    assert not unfinished(cache)


async def test_a_build_has_many_layers(start: StartSandbox, environment: Write) -> None:
    steps = "".join(f"COPY a /f{n}\n" for n in range(30))
    sandbox = await start(environment_dir=environment(f"FROM scratch\n{steps}", a="a"))
    assert await output(sandbox, "cat /f*") == "a" * 30


MOUNTS = """FROM scratch AS tools
RUN mkdir /t && echo tool > /t/x
FROM scratch
WORKDIR /app
RUN echo own > kept
RUN --mount=type=bind,source=a,target=a --mount=type=tmpfs,target=/empty cp a /copied && touch /empty/x
RUN --mount=target=. --mount=from=tools,source=/t,target=/tools cat a /tools/x > /both && test ! -e kept
RUN --mount=type=secret,id=x --mount=type=ssh test ! -e /run/secrets/x
"""


async def test_what_is_mounted_for_a_command_is_gone_after_it(start: StartSandbox, environment: Write) -> None:
    sandbox = await start(environment_dir=environment(MOUNTS, a="a\n"))
    assert await output(sandbox, "cat /copied /both kept; ls") == "a\na\ntool\nown\nkept\n"
    assert await output(sandbox, "ls -d /empty* /tools* /app* 2>/dev/null; true") == "/app\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("FROM scratch\nCOPY --from=y /a /a\n", "Dockerfile:2: COPY --from=y: nothing on this host stands in for this"),
        ("FROM scratch\nRUN --mount=type=bind true\n", "Dockerfile:2: RUN --mount=type=bind is not supported here"),
        (
            "FROM scratch\nRUN --mount=type=secret,id=x,required=true --mount=type=cache,target=/x true\n",
            "Dockerfile:2: RUN --mount=type=secret,id=x,required=true is not supported here",
        ),
        (
            "FROM scratch\nADD https://example.org/a /a\n",
            "Dockerfile:2: ADD https://example.org/a: downloading is not supported",
        ),
        ("FROM scratch\nONBUILD RUN true\n", "Dockerfile:2: ONBUILD is not supported here"),
    ],
)
async def test_what_only_an_image_build_can_do_is_refused_by_name(
    start: StartSandbox, environment: Write, lines: str, message: str
) -> None:
    with pytest.raises(UnsupportedError) as failure:
        await start(environment_dir=environment(lines))
    assert message in str(failure.value)
    assert "; use --bf-sandbox docker" in str(failure.value)


@pytest.mark.parametrize(
    ("text", "command", "expected"),
    [
        ("RUN <<EOF\necho one > /x\n# a comment\n\necho two >> /x\nEOF\nENV A=1\n", "cat /x; echo $A", "one\ntwo\n1\n"),
        ("RUN cat > /x <<EOF && echo more >> /x\nFROM here\nEOF\n", "cat /x", "FROM here\nmore\n"),
        ("RUN <<EOF\n#!/usr/bin/env python3\nopen('/x', 'w').write('py')\nEOF\n", "cat /x", "py"),
        ("RUN <<-EOF\n\techo tab > /x\n\tEOF\n", "cat /x", "tab\n"),
        ("RUN paste /dev/fd/3 - 3<<a <<b > /x\n1\na\n2\nb\n", "cat /x", "1\t2\n"),
        ("RUN cat << 'EOF' > /x\nRUN $no\nEOF\n", "cat /x", "RUN $no\n"),
        ("ARG n=3\nRUN echo $((1 << n)) > /x\n", "cat /x", "8\n"),
        ("RUN echo 'no <<EOF here' > /x\n", "cat /x", "no <<EOF here\n"),
        ("ENV W=word\nCOPY <<EOF /d/x\n'$W' \"${W}\" \\$W\nEOF\n", "cat /d/x", "'word' \"word\" $W\n"),
        ("ENV W=word\nCOPY <<'EOF' /d/x\n$W\nEOF\n", "cat /d/x", "$W\n"),
        ("COPY --chmod=755 <<a.sh <<b /d/\necho a\na.sh\nbee\nb\n", "/d/a.sh; cat /d/b", "a\nbee\n"),
    ],
)
async def test_here_documents_are_read(
    start: StartSandbox, environment: Write, text: str, command: str, expected: str
) -> None:
    sandbox = await start(environment_dir=environment(f"FROM scratch\n{text}"))
    assert await output(sandbox, command) == expected


async def test_a_changed_here_document_makes_a_new_layer(start: StartSandbox, environment: Write) -> None:
    for word in ("one", "two"):
        sandbox = await start(environment_dir=environment(f"FROM scratch\nCOPY <<EOF /x\n{word}\nEOF\n"))
        assert await output(sandbox, "cat /x") == f"{word}\n"


async def test_a_here_document_comes_from_no_stage(start: StartSandbox, environment: Write) -> None:
    with pytest.raises(BuildError, match="Dockerfile:3: COPY --from cannot take a here-document"):
        await start(environment_dir=environment("FROM scratch AS a\nFROM scratch\nCOPY --from=a <<E /x\nE\n"))


async def test_a_here_document_without_end_is_an_error(start: StartSandbox, environment: Write) -> None:
    with pytest.raises(BuildError, match=r"Dockerfile:2: the here-document EOF never ends; close it with a line"):
        await start(environment_dir=environment("FROM scratch\nRUN <<EOF\necho\n"))


STAGES = """
FROM scratch AS Build
ENV ONLY=build
WORKDIR /src
RUN mkdir -p out/deep && echo tool > out/tool && chmod 755 out/tool && ln -s tool out/deep/link && echo one > one
FROM build AS more
RUN echo $ONLY > /src/two
WORKDIR /late
FROM debian
COPY --from=build /src/out/*eep /src/[^o]* /fitting/
COPY --from=more /late /late
COPY --from=build /src/out /opt/out/
COPY --from=0 --chmod=600 src/one /one
COPY --from=more /src/one /src/two /both/
"""


async def test_stages_are_built_and_copied_from(start: StartSandbox, environment: Write) -> None:
    sandbox = await start(environment_dir=environment(STAGES))
    assert await output(sandbox, "cat /one /both/*; stat -c '%a %U' /one /opt/out/tool") == (
        "one\none\nbuild\n600 root\n755 root\n"
    )
    assert await output(sandbox, "ls /fitting /late") == "/fitting:\nlink\n\n/late:\n"
    assert (
        await output(sandbox, "readlink /opt/out/deep/link; ls -d /src 2>/dev/null; echo [$ONLY]; pwd")
        == "tool\n[]\n/app\n"
    )
    assert [note.split(" is ")[0] for note in sandbox.notes if "FROM" in note] == ["FROM scratch", "FROM debian"]


async def test_a_stage_nobody_needs_is_not_built(start: StartSandbox, environment: Write) -> None:
    sandbox = await start(
        environment_dir=environment("FROM scratch AS tests\nRUN exit 3\nFROM scratch\nRUN echo fine > /x\n")
    )
    assert await output(sandbox, "cat /x") == "fine\n"


async def test_a_change_in_a_stage_reaches_what_is_copied(start: StartSandbox, environment: Write) -> None:
    for word in ("one", "two"):
        text = f"FROM scratch AS a\nRUN echo {word} > /x\nFROM scratch\nCOPY --from=a /x /x\n"
        assert await output(await start(environment_dir=environment(text)), "cat /x") == f"{word}\n"


async def test_what_a_stage_does_not_have_is_an_error(start: StartSandbox, environment: Write) -> None:
    with pytest.raises(BuildError, match="Dockerfile:3: COPY /none: not found in the stage it is copied from"):
        await start(environment_dir=environment("FROM scratch AS a\nFROM scratch\nCOPY --from=a /none /x\n"))
    with pytest.raises(
        BuildError, match=r"Dockerfile:3: COPY /none\* /x: matches nothing in the stage it is copied from"
    ):
        await start(environment_dir=environment("FROM scratch AS a\nFROM scratch\nCOPY --from=a /none* /x\n"))


async def test_a_pattern_may_fit_nothing_beside_another_source(start: StartSandbox, environment: Write) -> None:
    files = {"a.txt": "a", "b.txt": "b"}
    sandbox = await start(environment_dir=environment("FROM scratch\nCOPY [^a].txt none* /x/\n", **files))
    assert await output(sandbox, "ls /x") == "b.txt\n"
    with pytest.raises(BuildError, match=r"Dockerfile:2: COPY none\*: matches nothing in the build context"):
        await start(environment_dir=environment("FROM scratch\nCOPY none* /x/\n"))
    with pytest.raises(BuildError, match="Dockerfile:2: COPY of several files needs a directory; write /x/ as its"):
        await start(environment_dir=environment("FROM scratch\nCOPY *.txt /x\n"))


async def test_a_directory_that_a_step_removes_stays_away(start: StartSandbox, environment: Write) -> None:
    text = "FROM scratch\nWORKDIR /build\nRUN touch made\nWORKDIR /app\nRUN rm -r /build\nRUN ls -d /build; true\n"
    sandbox = await start(environment_dir=environment(text))
    assert (await sandbox.exec("ls -d /build")).return_code != 0


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('RUN ["no-such-program"]', 'RUN ["no-such-program"]: sandbox box: no-such-program cannot be started: No such'),
        pytest.param(
            "USER nosuch\nRUN true", "RUN true: sandbox box: /bin/sh cannot be started: user", marks=needs_users
        ),
    ],
)
async def test_a_program_that_cannot_be_started_names_the_line(
    start: StartSandbox, environment: Write, lines: str, reason: str
) -> None:
    with pytest.raises(BuildError, match=f"Dockerfile:[23]: {re.escape(reason)}"):
        await start(environment_dir=environment(f"FROM scratch\n{lines}\n"))


async def test_a_layer_that_is_finished_while_leftovers_are_listed_is_no_error(cache: Path) -> None:
    layers_dir = cache / "layers"
    layers_dir.mkdir(exist_ok=True, mode=0o700)
    # Its status cannot be had, as of a directory that has just been renamed.
    vanished = layers_dir / "tmp-1-0-1"
    vanished.symlink_to("gone")
    try:
        found = await LocalLeftovers().find()
    finally:
        vanished.unlink()
    assert vanished.name in {trace.name for trace in found}
