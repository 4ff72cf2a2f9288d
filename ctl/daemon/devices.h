// SPDX-License-Identifier: GPL-2.0-only
// The devices ftctl is attached to: which hook each gets and why, all-or-nothing attach, devices
// that go and come back.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bpf/datapath.h"
#include "daemon/kernel_view.h"
#include "util/result.h"

namespace ftctl {

struct AttachOptions {
    std::string mode = "auto"; ///< auto, xdp, tc
    bool force = false;        ///< XDP in spite of what speaks against it
    std::string rpf;           ///< reverse path filter (daemon/rpf_mode.h); "": off
};

struct Device {
    std::string name;
    std::uint32_t ifindex = 0; ///< 0: wanted, but not there now
    ftctl_hook hook = FTCTL_HOOK_NONE;
    std::string why; ///< why this hook
    AttachOptions options;
    bool named = true;            ///< by the operator; else attached only on behalf of:
    std::set<std::string> uppers; ///< upper devices that the operator named and that this one is below
    std::uint32_t slot = 0;
    std::uint32_t ingress_prog_id = 0;
    std::uint32_t egress_prog_id = 0;
};

class Devices {
  public:
    Devices(Datapath &datapath, KernelView &kernel) : datapath_(datapath), kernel_(kernel) {}

    struct Outcome {
        Device device;
        bool changed = false;
    };
    /// What an upper device (bridge, VLAN, ppp, tunnel) was resolved to.
    using Resolved = std::map<std::string, std::vector<std::string>>;
    struct Attached {
        std::vector<Outcome> devices;
        Resolved uppers;
    };
    /// Attaches all of them or none. Devices that are attached as asked for stay as they are. An upper
    /// device stands for those its frames really use, now and whenever that changes.
    Result<Attached> attach(const std::vector<std::string> &names, const AttachOptions &options,
                            bool dry_run);
    /// The attached devices that this name stands for: its own, or those below an upper device.
    [[nodiscard]] std::vector<std::string> meant_by(const std::string &name) const;
    /// False: it was not attached.
    Result<bool> detach(const std::string &name);

    /// The mode of a device's reverse path filter. Code::not_running: it is not attached.
    Status set_rpf(const std::string &name, const std::string &mode);

    /// After a start with pins of an earlier daemon: puts this version's programs in their place.
    void adopt(const std::map<std::string, AttachOptions> &wanted);
    /// What the operator asked for, by the names he used.
    [[nodiscard]] std::map<std::string, AttachOptions> wanted() const;

    /// A link changed: MAC, or a wanted device is there (again). True when something was done to
    /// the attachments.
    bool on_link(const Link &link);
    /// A link is gone. True when it was attached; it stays wanted.
    bool on_gone(std::uint32_t ifindex);
    /// The devices above or below each other have changed: MAC addresses, ports of bridges. True when
    /// something was done to the attachments.
    bool follow();
    /// Somebody may have switched on what hides VLAN tags from XDP, or off what receives redirected frames:
    /// such a device takes nothing, or gets nothing, then.
    void check_offloads();

    /// Some device is to have a reverse path filter, be it there or not.
    [[nodiscard]] bool wants_rpf() const;
    [[nodiscard]] const std::map<std::string, Device> &all() const { return devices_; }
    [[nodiscard]] const Device *find(std::uint32_t ifindex) const;
    [[nodiscard]] bool none_attached() const;

  private:
    struct Choice {
        ftctl_hook hook = FTCTL_HOOK_NONE;
        std::string why;
    };
    Result<std::vector<Outcome>> attach_links(const std::vector<std::string> &names,
                                              const AttachOptions &options, bool dry_run);
    Result<std::vector<std::string>> below(const std::string &name);
    Status below(const Link &link, int depth, std::vector<std::string> &found);
    bool drop(const std::string &name, const std::string &upper);
    void want(const std::string &name, const AttachOptions &options, const std::string &why);
    Result<const Link *> usable(const std::string &name, const AttachOptions &options);
    Result<Choice> choose(const std::vector<const Link *> &links, const Link &link,
                          const AttachOptions &options);
    [[nodiscard]] bool is_ours(const Link &link) const;
    Status attach_one(const Link &link, const AttachOptions &options, const Choice &choice);
    Status detach_one(Device &device);
    void set_mac(const Device &device, const Mac &mac);
    void check_redirect(const Device &device, const Link &link);
    void check_hidden_tags(const Device &device, const Link &link);
    void apply_rpf(const Device &device);
    void count_rpf();

    Datapath &datapath_;
    KernelView &kernel_;
    std::map<std::string, Device> devices_;
    std::map<std::string, AttachOptions> uppers_; ///< that the operator named
    Resolved resolved_;                           ///< what they stand for now
    std::set<std::string> deaf_;                  ///< XDP devices that redirected frames do not reach
    std::set<std::string> hidden_tags_;           ///< devices that check_offloads() has stopped
};

/// An upper device whose frames use others, which are attached in its place.
bool stands_for_others(const Link &link);
/// The root qdisc does more than queue packets, so that it matters when XDP transmits below it.
bool shapes(const Link &link);
/// What makes XDP useless on this device whatever the operator says: frames would be lost.
std::optional<std::string> xdp_impossible(const Link &link);
/// What speaks against XDP on this device, the impossible included; nothing when it can have it.
std::optional<std::string> xdp_obstacle(const Link &link);

} // namespace ftctl
