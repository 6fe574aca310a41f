"""Who is at the other end of a unix socket, by the kernel's word."""

from __future__ import annotations

import os
import socket
import struct
import sys


def same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end runs as this user.

    Where the system cannot tell, the answer is yes: the socket's mode and its directory's then have to do.
    """
    uid = _peer_uid(connection)
    return uid is None or uid == os.geteuid()


def _peer_uid(connection: socket.socket) -> int | None:
    try:
        if hasattr(socket, "SO_PEERCRED"):
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", credentials)[1])
        if sys.platform == "darwin":
            # struct xucred: version, uid, …; level SOL_LOCAL (0), option LOCAL_PEERCRED (1).
            return int(struct.unpack_from("II", connection.getsockopt(0, 1, 76))[1])
    except OSError:
        return -1  # it is gone already
    return None
