"""The filter of system calls, run here as the kernel runs it: no sandbox and no particular kernel needed."""

from __future__ import annotations

import struct

import pytest

from pytest_benchflow.sandboxes.local.guest import libc, security

ALLOW, EPERM, ENOSYS, NOTHING = "allow", "EPERM", "ENOSYS", "success without effect"
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
ANSWERS = {0x7FFF0000: ALLOW, 0x00050001: EPERM, 0x00050026: ENOSYS, 0x00050000: NOTHING}
#: Calls by their numbers on x86_64 and aarch64, copied from the kernel's tables and not from the filter.
REFUSED = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "request_key": (249, 218),
    "setns": (308, 268),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
}
ABSENT = {"clone3": (435, 435), "io_uring_setup": (425, 425)}
ALLOWED = {"read": (0, 63), "execve": (59, 221), "socket": (41, 198), "chroot": (161, 51), "pidfd_open": (434, 434)}
CLONE, UNSHARE = (56, 220), (272, 97)
NAMESPACES = [value for name, value in vars(libc).items() if name.startswith("CLONE_NEW")]


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def answer(machine: str, number: int, *arguments: int, architecture: int | None = None, privileged: bool = True) -> str:
    """Run the filter of a machine on one call."""
    column, own = MACHINES[machine]
    data = struct.pack("<iIQ6Q", number, architecture or own, 0, *(*arguments, *[0] * 6)[:6])
    code = list(struct.iter_unpack("HBBI", security._program(column, own, privileged=privileged)))
    at = accumulator = 0
    while True:
        operation, true, false, operand = code[at]
        at += 1
        match operation:
            case 0x20:  # load a word
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x15:
                at += true if accumulator == operand else false
            case 0x35:
                at += true if accumulator >= operand else false
            case 0x45:
                at += true if accumulator & operand else false
            case 0x06:
                return ANSWERS[operand]


@pytest.mark.parametrize(
    ("calls", "expected"), [(REFUSED, EPERM), (ABSENT, ENOSYS), (ALLOWED, ALLOW)], ids=["refused", "absent", "allowed"]
)
@pytest.mark.parametrize("privileged", [True, False])
def test_each_call_gets_its_answer(
    machine: str, calls: dict[str, tuple[int, int]], expected: str, privileged: bool
) -> None:
    column = MACHINES[machine][0]
    answers = {name: answer(machine, numbers[column], privileged=privileged) for name, numbers in calls.items()}
    assert answers == dict.fromkeys(calls, expected)


KEEP = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("user", "group", "expected"),
    [
        (0, 0, ALLOW),
        (KEEP, 0, ALLOW),
        (0, KEEP, ALLOW),
        (7, 0, NOTHING),
        (0, 7, NOTHING),
        (KEEP, 7, NOTHING),
        (7, 8, NOTHING),
    ],
)
def test_files_are_given_to_nobody_but_root_where_only_root_exists(
    machine: str, user: int, group: int, expected: str
) -> None:
    calls = {"x86_64": [(92, 1), (93, 1), (94, 1), (260, 2)], "aarch64": [(55, 1), (54, 2)]}[machine]
    for number, place in calls:
        arguments = (*[5] * place, user, group)
        assert answer(machine, number, *arguments, privileged=False) == expected
        assert answer(machine, number, *arguments) == ALLOW


def test_new_namespaces_are_refused_and_new_processes_are_not(machine: str) -> None:
    column = MACHINES[machine][0]
    assert len(NAMESPACES) == 7
    for number in (CLONE[column], UNSHARE[column]):
        assert {answer(machine, number, flag | 0x11) for flag in NAMESPACES} == {EPERM}
        assert answer(machine, number, 0x003D0F00) == ALLOW


def test_sockets_to_the_machine_below_are_refused_and_others_are_not(machine: str) -> None:
    number = ALLOWED["socket"][MACHINES[machine][0]]
    assert {family: answer(machine, number, family) for family in (1, 2, 10, 16, 40)} == {
        **dict.fromkeys((1, 2, 10, 16), ALLOW),
        40: EPERM,
    }


def test_other_tables_of_numbers_do_not_lead_around_it(machine: str) -> None:
    """Neither the 32-bit table, with another architecture, nor x32, with a bit of its own."""
    assert answer(machine, 0, architecture=0x40000003) == ENOSYS
    for numbers in (REFUSED["mount"], ALLOWED["read"]):
        assert answer(machine, numbers[MACHINES[machine][0]] | 0x40000000) == ENOSYS
