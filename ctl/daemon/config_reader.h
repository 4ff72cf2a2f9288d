// SPDX-License-Identifier: GPL-2.0-only
// Checked access to a JSON object. The first problem is kept, with the place where it is; reading
// goes on with defaults, so that callers need no error paths of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "daemon/config.h"

namespace ftctl {

struct ConfigProblem {
    bool found = false;
    std::string pointer; ///< JSON pointer
    std::string why;
    std::string hint;
};

class ConfigReader {
  public:
    /// References must outlive the reader.
    ConfigReader(const nlohmann::json &json, std::string pointer, ConfigProblem &problem);

    /// All keys that may be there; others are problems.
    void keys(const std::vector<std::string> &known);
    /// Notes a problem at a key ("": at the object).
    void complain(const std::string &key, std::string why, std::string hint = {});

    [[nodiscard]] const nlohmann::json &json() const { return json_; }
    /// The value, or null when the key is absent (or explicitly null).
    [[nodiscard]] const nlohmann::json *find(const std::string &key) const;
    bool require(const std::string &key);

    std::string text(const std::string &key, const std::string &fallback = {});
    std::int64_t number(const std::string &key, std::int64_t fallback, std::int64_t min, std::int64_t max);
    bool boolean(const std::string &key, bool fallback);
    /// Text that is one of a list.
    std::string choice(const std::string &key, const std::string &fallback,
                       const std::vector<std::string> &allowed);
    /// Name of a device: 1-15 characters, no slash, no space.
    std::string device(const std::string &key);
    IpAddr address(const std::string &key);
    Prefix prefix(const std::string &key);

    void object(const std::string &key, const std::function<void(ConfigReader &)> &handler);
    void each(const std::string &key, const std::function<void(ConfigReader &)> &handler);

  private:
    const nlohmann::json &json_;
    std::string pointer_;
    ConfigProblem &problem_;
};

/// Is this a name the kernel would take for a device (dev_valid_name())?
bool valid_device_name(const std::string &name);

DeviceConfig read_device(ConfigReader &r);
TunnelDecl read_tunnel(ConfigReader &r);
PolicyRule read_policy(ConfigReader &r);
/// "mark": "VALUE[/MASK]" or "none".
void read_mark(ConfigReader &r, std::uint32_t &value, std::uint32_t &mask);
/// "packet_mark": "unknown" (false) or "conntrack" (true).
bool read_packet_mark(ConfigReader &r);

} // namespace ftctl
