// SPDX-License-Identifier: GPL-2.0-only
// The command's client against the real server; the server runs in a thread of its own here.
#include "control_socket.h"

#include <atomic>
#include <thread>

#include "cli/client.h"

using namespace ftctl;
using namespace ftctl::test;
using nlohmann::json;

namespace {

class ServerThread {
  public:
    explicit ServerThread(std::unique_ptr<ControlServer> server) : server_(std::move(server))
    {
        thread_ = std::thread([this] {
            while (!stop_) {
                pollfd p{server_->fd(), POLLIN, 0};
                if (poll(&p, 1, 10) > 0)
                    (void)server_->dispatch();
                if (publish_.exchange(false))
                    server_->publish({{"event", "live"}});
            }
        });
    }
    ~ServerThread()
    {
        stop_ = true;
        thread_.join();
    }
    ServerThread(const ServerThread &) = delete;
    ServerThread &operator=(const ServerThread &) = delete;
    void publish() { publish_ = true; }

  private:
    std::unique_ptr<ControlServer> server_;
    std::atomic<bool> stop_{false};
    std::atomic<bool> publish_{false};
    std::thread thread_;
};

} // namespace

TEST_CASE("the client without a daemon says how to start one", "[cli]")
{
    const TempDir dir;
    const auto c = Client::connect_path(dir.path + "/s", "blue");
    REQUIRE_FALSE(c.has_value());
    CHECK(c.error().code == Code::not_running);
    CHECK(c.error().hint == "start it: ftctld -i blue");
}

TEST_CASE("the client receives whole answers, errors and parts", "[cli]")
{
    const TempDir dir;
    const ServerThread server(serve(dir.path + "/s"));
    auto c = Client::connect_path(dir.path + "/s", "blue");
    REQUIRE(c.has_value());
    CHECK(c->call("echo", {{"x", 1}})->data == json{{"cmd", "echo"}, {"x", 1}});
    CHECK(c->call("big")->data.get<std::string>().size() == 20U << 20);
    const auto part = c->call("part");
    REQUIRE(part.has_value());
    REQUIRE(part->errors.size() == 1);
    CHECK(part->errors[0].code == Code::not_running);
    const auto bad = c->call("nonsense");
    REQUIRE_FALSE(bad.has_value());
    CHECK(bad.error().code == Code::usage);
    CHECK(bad.error().why == "unknown command");
    CHECK_FALSE(c->call("echo", {{"x", std::string(100000, 'x')}}).has_value());
}

TEST_CASE("the client receives the elements of an array one by one", "[cli]")
{
    const TempDir dir;
    const ServerThread server(serve(dir.path + "/s"));
    auto c = Client::connect_path(dir.path + "/s", "blue");
    REQUIRE(c.has_value());
    for (const int n : {0, 1, 10, 100, 20000}) {
        std::vector<int> want, got;
        for (int i = 0; i < n; i++)
            if (i % 11 != 10)
                want.push_back(i);
        const auto answer = c->call_each("many", {{"n", n}}, [&](const json &element) {
            got.push_back(element.at("n").get<int>());
            CHECK(element.at("text").get<std::string>().size() == 106);
        });
        INFO(n);
        REQUIRE(answer.has_value());
        CHECK(answer->data == json::array());
        CHECK(got == want);
    }
    // other answers are what they are with call()
    CHECK(c->call_each("echo", {{"x", 1}}, [](const json &) { CHECK(false); })->data ==
          json{{"cmd", "echo"}, {"x", 1}});
    CHECK(c->call_each("nonsense", json::object(), [](const json &) { CHECK(false); }).error().why ==
          "unknown command");
    CHECK(c->call("many", {{"n", 10}})->data.size() == 10);
}

TEST_CASE("the client's stream ends when the handler has enough, or the daemon goes", "[cli]")
{
    const TempDir dir;
    auto server = std::make_unique<ServerThread>(serve(dir.path + "/s"));
    auto c = Client::connect_path(dir.path + "/s", "blue");
    REQUIRE(c.has_value());
    REQUIRE(c->call("monitor").has_value());
    server->publish();
    std::string got;
    CHECK(c->stream(-1, [&](std::string_view line) {
               got = line;
               return false;
           }).has_value());
    CHECK(got == R"({"event":"live"})");
    server.reset();
    const auto end = c->stream(-1, [](std::string_view) { return true; });
    REQUIRE_FALSE(end.has_value());
    CHECK(end.error().code == Code::not_running);
}

TEST_CASE("the client does not wait for ever, nor believe nonsense", "[cli]")
{
    const TempDir dir;
    const auto path = dir.path + "/s";
    const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un sa{};
    sa.sun_family = AF_UNIX;
    path.copy(sa.sun_path, sizeof(sa.sun_path) - 1);
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr *>(&sa), sizeof(sa)) == 0);
    REQUIRE(listen(listener.get(), 5) == 0);

    auto silent = Client::connect_path(path, "blue");
    REQUIRE(silent.has_value());
    silent->timeout = std::chrono::milliseconds(100);
    CHECK_THAT(silent->call("echo").error().why, Catch::Contains("no answer"));
    const Fd first(accept(listener.get(), nullptr, nullptr));

    for (const std::string text :
         {"nonsense\n", "[]\n", "{\"ok\":1}\n", "{\"ok\":false}\n",
          "{\"ok\":false,\"error\":{\"code\":99,\"what\":5}}\n", "half a line",
          "{\"data\":[5],\"ok\":true}\n", "{\"data\":[{}", "{\"data\":[{x}],\"ok\":true}\n"}) {
        auto c = Client::connect_path(path, "blue");
        REQUIRE(c.has_value());
        Fd peer(accept(listener.get(), nullptr, nullptr));
        REQUIRE(send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL) > 0);
        shutdown(peer.get(), SHUT_WR);
        const auto r = text.starts_with("{\"data") ? c->call_each("echo", json::object(), [](const json &) {})
                                                   : c->call("echo");
        INFO(text);
        REQUIRE_FALSE(r.has_value());
        CHECK(r.error().code != Code::ok);
        CHECK_FALSE(r.error().why.empty());
    }
}
