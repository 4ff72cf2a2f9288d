// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/control_listen.h"

#include <chrono>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace ftctl {

namespace {

constexpr int kBacklog = 64;
constexpr mode_t kMode = 0660;

std::optional<sockaddr_un> address(const std::string &path)
{
    sockaddr_un sa{};
    sa.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(sa.sun_path))
        return std::nullopt;
    path.copy(sa.sun_path, sizeof(sa.sun_path) - 1);
    return sa;
}

/// Somebody accepts connections here. A full backlog (EAGAIN) and a refused permission also mean
/// that somebody is there.
bool served(const sockaddr_un &sa)
{
    const Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe)
        return true;
    if (connect(probe.get(), reinterpret_cast<const sockaddr *>(&sa), sizeof(sa)) == 0)
        return true;
    return errno != ECONNREFUSED && errno != ENOENT;
}

/// Two daemons that start at the same moment must not remove each other's socket: the directory
/// is locked meanwhile. Anybody who can open the directory can hold that lock, so it is only
/// waited for a while, and then done without.
Fd lock_directory(const std::string &dir)
{
    Fd fd(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return fd;
}

} // namespace

void ListeningSocket::remove_file() const
{
    struct stat st {};
    if (fd && lstat(path.c_str(), &st) == 0 && st.st_dev == dev && st.st_ino == ino)
        unlink(path.c_str());
}

Result<ListeningSocket> listen_at(const std::string &path)
{
    const std::string what = "control socket " + path;
    const auto sa = address(path);
    if (!sa)
        return fail(what, "the name is too long for a socket", "choose a shorter instance name", Code::usage);
    const std::string dir = path.substr(0, path.find_last_of('/'));
    if (mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST)
        return fail_errno("make directory " + dir, errno, "run the daemon as root");
    const Fd lock = lock_directory(dir);

    ListeningSocket out;
    out.path = path;
    out.fd.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!out.fd)
        return fail_errno(what, errno);
    // The file gets the socket inode's mode less the umask: it is never wider than this.
    fchmod(out.fd.get(), kMode);
    const auto *addr = reinterpret_cast<const sockaddr *>(&*sa);
    if (bind(out.fd.get(), addr, sizeof(*sa)) != 0) {
        if (errno != EADDRINUSE)
            return fail_errno(what, errno);
        struct stat st {};
        if (lstat(path.c_str(), &st) == 0 && !S_ISSOCK(st.st_mode))
            return fail(what, "there is a file of this name that is no socket", "remove it");
        if (served(*sa))
            return fail(what, "already running",
                        "another ftctld serves this instance; choose another one with -i");
        if (unlink(path.c_str()) != 0 && errno != ENOENT)
            return fail_errno(what, errno);
        if (bind(out.fd.get(), addr, sizeof(*sa)) != 0)
            return fail_errno(what, errno);
    }
    struct stat st {};
    if (lstat(path.c_str(), &st) != 0)
        return fail_errno(what, errno);
    out.dev = st.st_dev;
    out.ino = st.st_ino;
    if (chmod(path.c_str(), kMode) != 0 || ::listen(out.fd.get(), kBacklog) != 0) {
        const int err = errno;
        out.remove_file();
        return fail_errno(what, err);
    }
    return out;
}

bool peer_allowed(int fd, const std::string &path)
{
    ucred cred{};
    socklen_t len = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
        return false;
    if (cred.uid == 0 || cred.uid == geteuid())
        return true;
    struct stat st {};
    return stat(path.c_str(), &st) == 0 && cred.gid == st.st_gid;
}

} // namespace ftctl
