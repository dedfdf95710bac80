"""The truth about the boundary: there is none (ARCH-29: a provider never claims what it does not enforce)."""

from dataclasses import dataclass
from typing import Final

from tyrum_local_spawn.settings import Settings

NOT_ENFORCED: Final = {
    "fs.read": "commands read whatever their user can read",
    "fs.write": "commands write wherever their user can write",
    "fs.root_ro": "commands see the host's root file system as it is",
    "fs.sysctl": "kernel settings are protected by file permissions only",
    "env.sealed": "the environment is exact, but those of other processes of its user can be read in /proc",
    "fd.sealed": "no descriptor is inherited, but those of other processes of its user are open in /proc",
    "net.none": "commands use the host's network",
    "net.family": "every socket family is available",
    "daemon.sockets": "sockets of the host's daemons can be reached",
    "daemon.none_survive": "descendants are ended as far as they can be found; no namespace holds them",
    "proc.blind": "commands see the host's processes and can signal those of their user",
    "proc.unprivileged": "no capability is dropped and no_new_privs is not set",
    "proc.syscalls": "no system call is filtered",
    "tty.isolated": "commands have a session without a terminal, but no filter keeps them from opening one",
    "res.memory": "memory is not limited",
    "res.pids": "the number of processes is not limited",
    "res.cpu": "processor time is not limited",
    "res.scratch": "disk use is not limited",
    "res.files": "only core files are switched off",
    "res.time": "the wall-clock limit ends the tree as far as it can be found, which is no boundary",
}
"""Every claim of the registry with the reason why this provider does not enforce it."""


@dataclass(frozen=True, slots=True)
class Posture:
    """What operators are told."""

    run_uid: int
    shares_gateway_user: bool
    notes: tuple[str, ...]


def posture(settings: Settings, *, uid: int) -> Posture:
    """State the posture; `uid` is the user of provider and gateway."""
    run_uid = uid if settings.run_as is None else settings.run_as.uid
    shared = run_uid == uid
    notes = [
        "Commands are ordinary host processes. Nothing confines them beyond the permissions of their user.",
        "Ending a process sends SIGTERM to its process group, then SIGKILL to the group and to every"
        " descendant, wherever it forked or called setsid, until none is left or 5 s have passed;"
        " tree_empty says which.",
        "Out of reach: processes started on behalf of the command by others (at, cron, systemd, docker, ssh),"
        " descendants of another user that the provider may not signal, and a tree that forks faster than it"
        " is walked for 5 s.",
        "A process ends with its leader: descendants left behind get 0.1 s to finish, then SIGKILL.",
        "A script is checked against its digest and then opened again by its interpreter; who can write it"
        " can exchange it in between. ELF programs are executed from the file that was checked.",
    ]
    if shared:
        notes.append(
            "Commands run as the gateway's user: they can read what the gateway can (its state, its secrets"
            " on disk and in /proc), signal it, and kill the supervisors that watch them."
        )
    if run_uid == 0:
        notes.append("Commands run as root and can change the host without limit.")
    return Posture(run_uid, shared, tuple(notes))
