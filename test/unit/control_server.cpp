// SPDX-License-Identifier: GPL-2.0-only
#include "control_socket.h"

#include <sys/wait.h>

#include "daemon/control_protocol.h"

using namespace ftctl;
using namespace ftctl::test;
using nlohmann::json;

TEST_CASE("names of instances", "[control]")
{
    CHECK(socket_path("default") == "/run/ftctl/default.sock");
    CHECK(valid_instance("a"));
    CHECK(valid_instance("net-1_x"));
    CHECK(valid_instance(std::string(64, 'a')));
    for (const auto *bad : {"", ".", "..", ".x", "a.b", "a/b", "a b", "a\n", "\xc3\xa4"})
        CHECK_FALSE(valid_instance(bad));
    CHECK_FALSE(valid_instance(std::string(65, 'a')));
}

TEST_CASE("requests are answered", "[control]")
{
    const TempDir dir;
    auto server = serve(dir.path + "/dir/s");
    struct stat st {};
    REQUIRE(stat((dir.path + "/dir/s").c_str(), &st) == 0);
    CHECK((st.st_mode & 07777) == 0660);
    REQUIRE(stat((dir.path + "/dir").c_str(), &st) == 0);
    CHECK((st.st_mode & 07777) == 0755);
    RawClient c(dir.path + "/dir/s");
    CHECK(c.ask(*server, R"({"cmd":"echo","n":1})") ==
          json{{"ok", true}, {"data", {{"cmd", "echo"}, {"n", 1}}}});
    const auto part = c.ask(*server, R"({"cmd":"part"})");
    CHECK(part["ok"] == true);
    CHECK(part["errors"][0]["why"] == "no such device");
    CHECK(part["errors"][0]["code"] == 3);
    const auto no = c.ask(*server, R"({"cmd":"nothing"})");
    CHECK(no["ok"] == false);
    CHECK(no["error"] ==
          json{{"what", "nothing"}, {"why", "unknown command"}, {"hint", "see ftctl --help"}, {"code", 1}});
    CHECK(c.ask(*server, R"({"cmd":"bytes"})")["data"] == "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("requests in one write, and a client that half-closes", "[control]")
{
    const TempDir dir;
    auto server = serve(dir.path + "/s");
    RawClient c(dir.path + "/s");
    c.send_text(*server, "{\"cmd\":\"big\"}\n{\"cmd\":\"echo\",\"n\":1}\n{\"cmd\":\"echo\",\"n\":2}\n");
    c.half_close();
    CHECK(c.receive(*server)["data"].get<std::string>().size() == 20U << 20);
    CHECK(c.receive(*server)["data"]["n"] == 1);
    CHECK(c.receive(*server)["data"]["n"] == 2);
    CHECK(c.closed(*server));
    CHECK(server->clients() == 0);
}

TEST_CASE("a large array is made while its reader reads", "[control]")
{
    const TempDir dir;
    auto server = serve(dir.path + "/s");
    RawClient slow(dir.path + "/s"), other(dir.path + "/s");
    slow.send_text(*server, "{\"cmd\":\"many\",\"n\":100000}\n{\"cmd\":\"echo\",\"n\":1}\n");
    for (int i = 0; i < 10; i++) // others are served meanwhile
        CHECK(other.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
    slow.half_close();
    CHECK(slow.receive(*server)["data"].size() == 90910);
    CHECK(slow.receive(*server)["data"]["n"] == 1);
    CHECK(slow.closed(*server));

    // nothing to tell for longer than an idle client is kept
    ControlServer::Options brief;
    brief.idle = std::chrono::milliseconds(80);
    auto searching = serve(dir.path + "/dir/s", brief);
    RawClient patient(dir.path + "/dir/s");
    CHECK(patient.ask(*searching, R"({"cmd":"search"})") == json{{"ok", true}, {"data", {{{"n", 1}}}}});

    RawClient leaver(dir.path + "/s");
    leaver.send_text(*server, "{\"cmd\":\"many\",\"n\":100000}\n");
    CHECK(other.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
    leaver.shut();
    CHECK(serve_until(*server, [&] { return server->clients() == 1; }));
}

TEST_CASE("what is no request is answered with an error, and the client stays", "[control]")
{
    const TempDir dir;
    auto server = serve(dir.path + "/s");
    RawClient c(dir.path + "/s");
    std::string nul = R"({"cmd":"ec?ho"})";
    nul[10] = '\0';
    for (const std::string &line :
         {std::string("x"), std::string(""), std::string("5"), std::string("[]"), std::string("{}"),
          std::string(R"({"cmd":5})"), std::string(R"({"cmd":null})"), std::string(R"({"cmd":"echo")"),
          std::string("{\"cmd\":\"\xff\"}"), std::string(R"({"cmd":"echo"} x)"),
          std::string(R"({"cmd":"echo","n":1e999})"), nul, std::string(20000, '['),
          R"({"cmd":"echo","a":)" + std::string(20000, '[') + std::string(20000, ']') + "}"}) {
        INFO(line.substr(0, 60));
        const auto answer = c.ask(*server, line);
        REQUIRE(answer.is_object());
        CHECK(answer["ok"] == false);
        CHECK(answer["error"]["code"] == 1);
    }
    CHECK(c.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
}

TEST_CASE("a request may be as long as the bound, not longer", "[control]")
{
    const TempDir dir;
    auto server = serve(dir.path + "/s");
    const std::string head = R"({"cmd":"echo","x":")";
    RawClient fits(dir.path + "/s");
    const auto longest = head + std::string(kMaxRequest - head.size() - 2, 'a') + "\"}";
    REQUIRE(longest.size() == kMaxRequest);
    CHECK(fits.ask(*server, longest)["ok"] == true);

    RawClient over(dir.path + "/s");
    over.send_text(*server, head + std::string(kMaxRequest - head.size() - 1, 'a') + "\"}\n");
    CHECK(over.receive(*server)["error"]["why"].get<std::string>().find("65536") != std::string::npos);
    CHECK(over.closed(*server));

    RawClient endless(dir.path + "/s"); // never a newline
    endless.send_text(*server, std::string(1U << 20, 'a'));
    CHECK(endless.receive(*server)["ok"] == false);
    CHECK(endless.closed(*server));
    CHECK(fits.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
}

TEST_CASE("too many clients", "[control]")
{
    const TempDir dir;
    ControlServer::Options options;
    options.max_clients = 2;
    auto server = serve(dir.path + "/s", options);
    RawClient a(dir.path + "/s");
    CHECK(a.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
    {
        RawClient b(dir.path + "/s");
        CHECK(b.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
        RawClient c(dir.path + "/s");
        CHECK(c.receive(*server)["error"]["why"] == "too many clients");
        CHECK(c.closed(*server));
    }
    REQUIRE(serve_until(*server, [&] { return server->clients() == 1; }));
    RawClient d(dir.path + "/s");
    CHECK(d.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
}

TEST_CASE("idle clients are closed, monitors are not", "[control]")
{
    const TempDir dir;
    ControlServer::Options options;
    options.idle = std::chrono::milliseconds(200);
    auto server = serve(dir.path + "/s", options);
    RawClient monitor(dir.path + "/s");
    CHECK(monitor.ask(*server, R"({"cmd":"monitor"})")["ok"] == true);
    RawClient idle(dir.path + "/s");
    CHECK(idle.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
    CHECK(idle.closed(*server));
    CHECK(server->monitors() == 1);
    server->publish({{"event", "x"}});
    CHECK(monitor.receive(*server)["event"] == "x");
}

TEST_CASE("a client that does not read its answer is closed after a time", "[control]")
{
    const TempDir dir;
    ControlServer::Options options;
    options.idle = std::chrono::milliseconds(200);
    auto server = serve(dir.path + "/s", options);
    RawClient lazy(dir.path + "/s");
    lazy.send_text(*server, "{\"cmd\":\"big\"}\n");
    REQUIRE(serve_until(*server, [&] { return server->clients() == 1; }));
    CHECK(serve_until(*server, [&] { return server->clients() == 0; }));
}

TEST_CASE("monitors receive what is published, slow ones are dropped", "[control]")
{
    const TempDir dir;
    ControlServer::Options options;
    options.monitor_queue = 100000;
    auto server = serve(dir.path + "/s", options);
    RawClient quick(dir.path + "/s");
    RawClient slow(dir.path + "/s");
    RawClient other(dir.path + "/s");
    CHECK(quick.ask(*server, R"({"cmd":"monitor"})")["ok"] == true);
    CHECK(slow.ask(*server, R"({"cmd":"monitor"})")["ok"] == true);
    CHECK(other.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
    CHECK(server->monitors() == 2);
    const std::string text(1000, 'e');
    int n = 0;
    for (; n < 20000 && server->monitors() == 2; n++) {
        server->publish({{"n", n}, {"text", text}});
        REQUIRE(quick.receive(*server)["n"] == n);
    }
    CHECK(server->monitors() == 1);
    CHECK(n > 90); // the queue was used, not only the socket buffer
    server->publish({{"n", -1}});
    CHECK(quick.receive(*server)["n"] == -1);
    CHECK(other.ask(*server, R"({"cmd":"echo"})")["ok"] == true); // saw no events
    quick.shut();
    CHECK(serve_until(*server, [&] { return server->monitors() == 0; }));
}

TEST_CASE("a second server of the same name is refused, a stale socket is replaced", "[control]")
{
    const TempDir dir;
    const auto path = dir.path + "/s";
    {
        auto server = serve(path);
        const auto second = ControlServer::listen(path, handler);
        REQUIRE_FALSE(second.has_value());
        CHECK(second.error().why == "already running");
        RawClient c(path); // and the first still works
        CHECK(c.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
    }
    CHECK(access(path.c_str(), F_OK) != 0); // removed at the end
    {
        // What a killed daemon leaves: a file nobody serves.
        const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_un sa{};
        sa.sun_family = AF_UNIX;
        path.copy(sa.sun_path, sizeof(sa.sun_path) - 1);
        REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr *>(&sa), sizeof(sa)) == 0);
    }
    REQUIRE(access(path.c_str(), F_OK) == 0);
    auto server = serve(path);
    RawClient c(path);
    CHECK(c.ask(*server, R"({"cmd":"echo"})")["ok"] == true);
}

TEST_CASE("a file that is no socket is left alone", "[control]")
{
    const TempDir dir;
    const auto path = dir.path + "/s";
    const Fd fd(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    REQUIRE(fd.get() >= 0);
    CHECK_FALSE(ControlServer::listen(path, handler).has_value());
    struct stat st {};
    REQUIRE(stat(path.c_str(), &st) == 0);
    CHECK(S_ISREG(st.st_mode));
    CHECK_FALSE(ControlServer::listen("/tmp/" + std::string(200, 'x'), handler).has_value());
    CHECK_FALSE(ControlServer::listen("/nonexistent/x/s", handler).has_value());
}

TEST_CASE("a server that was replaced leaves the new one's socket", "[control]")
{
    const TempDir dir;
    const auto path = dir.path + "/s";
    auto first = serve(path);
    REQUIRE(unlink(path.c_str()) == 0); // an operator's mistake
    auto second = serve(path);
    first.reset();
    CHECK(access(path.c_str(), F_OK) == 0);
}

namespace {

/// Connects as another user and group in a child; the child's exit code tells what it was answered.
int status_as(ControlServer &server, const std::string &path, uid_t uid, gid_t gid)
{
    const pid_t pid = fork();
    if (pid == 0) {
        // Only system calls here: no assertions in a child.
        sockaddr_un sa{};
        sa.sun_family = AF_UNIX;
        path.copy(sa.sun_path, sizeof(sa.sun_path) - 1);
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        timeval tv{10, 0};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        const std::string request = "{\"cmd\":\"echo\"}\n";
        if (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0 ||
            connect(fd, reinterpret_cast<sockaddr *>(&sa), sizeof(sa)) != 0)
            _exit(10);
        (void)!send(fd, request.data(), request.size(), MSG_NOSIGNAL);
        std::string answer(4096, '\0');
        const auto n = recv(fd, answer.data(), answer.size(), 0);
        answer.resize(static_cast<std::size_t>(n > 0 ? n : 0));
        _exit(answer.find("permission denied") != std::string::npos ? 2
              : answer.find("\"ok\":true") != std::string::npos     ? 0
                                                                    : 11);
    }
    int status = 0;
    CHECK(serve_until(server, [&] { return waitpid(pid, &status, WNOHANG) == pid; }));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

} // namespace

TEST_CASE("only root, the daemon's user and the socket's group are served", "[control]")
{
    if (geteuid() != 0) {
        WARN("not root: other users cannot be tried");
        return;
    }
    const TempDir dir;
    const auto path = dir.path + "/s";
    auto server = serve(path);
    REQUIRE(chmod(dir.path.c_str(), 0755) == 0);
    CHECK(status_as(*server, path, 65534, 65534) == 10); // the file's mode already says no
    REQUIRE(chmod(path.c_str(), 0666) == 0);             // as if an operator had opened it
    CHECK(status_as(*server, path, 65534, 65534) == 2);
    CHECK(status_as(*server, path, 0, 65534) == 0);
    REQUIRE(chown(path.c_str(), 0, 12345) == 0);
    CHECK(status_as(*server, path, 65534, 12345) == 0);
    CHECK(server->fd() >= 0);
}
