// SPDX-License-Identifier: GPL-2.0-only
#include "cli/ask.h"

namespace ftctl {

using nlohmann::json;

int finish(const Call &call, const Result<Answer> &answer, View view)
{
    if (!answer)
        return report(call, answer.error());
    emit(*call.out, call.output, answer->data, view);
    for (const auto &e : answer->errors)
        print_error(*call.err, e);
    return static_cast<int>(answer->errors.empty() ? Code::ok : Code::partial);
}

Result<Client> open_client(const Call &call, const std::string &cmd)
{
    auto client = Client::connect(call.instance);
    if (!client) {
        // The user's words first: what could not be done.
        client.error().why = client.error().what + ": " + client.error().why;
        client.error().what = cmd;
    }
    return client;
}

Result<Answer> ask(const Call &call, const std::string &cmd, const json &arguments)
{
    auto client = open_client(call, cmd);
    if (!client)
        return tl::unexpected(client.error());
    return client->call(cmd, arguments);
}

Result<Answer> ask_or(const Call &call, const std::string &cmd, const json &arguments,
                      const std::function<Result<json>()> &offline)
{
    auto answer = ask(call, cmd, arguments);
    if (answer || answer.error().code != Code::not_running)
        return answer;
    auto data = offline();
    if (!data) // with nothing pinned either, that no daemon runs is what can be changed
        return tl::unexpected(data.error().code == Code::not_running ? answer.error() : data.error());
    if (call.output.format == Format::text)
        *call.err << "note: the daemon is not running; this is from the pinned maps\n";
    return Answer{std::move(*data), {}};
}

} // namespace ftctl
