// SPDX-License-Identifier: GPL-2.0-only
// The early filter's maps: a rule set is made whole, beside the one in use, and then put in its place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bpf/maps.h"
#include "util/filter_tables.h"

namespace ftctl::bpf {

class FilterMaps {
  public:
    /// Takes over the set that ftctl_config.filter names. Asks for maps by number, which takes CAP_SYS_ADMIN.
    Status open(const Maps &maps);
    /// All or nothing, and no packet sees half of it. Rules that stay as they are keep their counters.
    /// `slots`: the devices that are attached, by slot.
    Status replace(const Maps &maps, const FilterTables &tables,
                   const std::map<std::uint32_t, std::string> &slots);
    /// The rules with what they have counted so far.
    [[nodiscard]] std::vector<ftctl_filter_rule> read() const;
    [[nodiscard]] bool empty() const { return !set_; }
    /// Rules that name this device are about this slot from now on.
    void bind(std::uint32_t slot, const std::string &device);
    /// Slot `to` is judged as slot `from` is.
    void bind_as(std::uint32_t to, std::uint32_t from);

  private:
    struct Set {
        Fd prefixes, classes, counts, rules;
        Mapping classes_memory, counts_memory, rules_memory;
        std::size_t size = 0;
        [[nodiscard]] ftctl_filter_set &set() const
        {
            return *static_cast<ftctl_filter_set *>(classes_memory.data());
        }
        [[nodiscard]] ftctl_filter_rule *rule() const
        {
            return static_cast<ftctl_filter_rule *>(rules_memory.data());
        }
        Status map();
        [[nodiscard]] ftctl_filter_count counted(std::size_t rank) const;
    };
    static Result<Set> make(const FilterTables &tables);
    static void bind(const Set &set, std::uint32_t slot, const std::string &device);

    std::optional<Set> set_;
};

} // namespace ftctl::bpf
