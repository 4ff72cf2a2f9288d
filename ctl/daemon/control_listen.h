// SPDX-License-Identifier: GPL-2.0-only
// Making the control socket's file and telling who may use it.
#pragma once

#include <string>

#include <sys/types.h>

#include "util/fd.h"
#include "util/result.h"

namespace ftctl {

/// A listening socket and the file it stands for.
struct ListeningSocket {
    Fd fd;
    std::string path;
    dev_t dev = 0;
    ino_t ino = 0;

    /// Removes the file unless somebody else has put another one there.
    void remove_file() const;
};

/// See ControlServer::listen().
Result<ListeningSocket> listen_at(const std::string &path);

/// SO_PEERCRED: root, the daemon's own user, or the socket file's group.
bool peer_allowed(int fd, const std::string &path);

} // namespace ftctl
