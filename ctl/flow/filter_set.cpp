// SPDX-License-Identifier: GPL-2.0-only
#include "flow/filter_set.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "util/abi_addr.h"

namespace ftctl {

namespace {

using Bits = std::array<std::uint64_t, FTCTL_FILTER_WORDS>;

void set_bit(Bits &bits, std::size_t bit)
{
    bits.at(bit / 64) |= std::uint64_t{1} << (bit % 64);
}

/// The bitmaps of a set; equal ones are one.
class Masks {
  public:
    explicit Masks(ftctl_filter_set &set) : set_(set) {}

    std::uint16_t index(const Bits &bits)
    {
        const auto [it, added] = known_.emplace(bits, static_cast<std::uint16_t>(known_.size()));
        if (added && it->second < FTCTL_FILTER_MASKS) {
            ftctl_filter_mask &mask = set_.masks[it->second];
            for (std::size_t i = 0; i < FTCTL_FILTER_WORDS; i++) {
                mask.word[i] = bits.at(i);
                mask.summary |= std::uint64_t{bits.at(i) != 0} << i;
            }
        }
        return it->second;
    }
    [[nodiscard]] std::size_t count() const { return known_.size(); }

  private:
    ftctl_filter_set &set_;
    std::map<Bits, std::uint16_t> known_;
};

/// One prefix that rules name, in the order of the trie: what covers comes before what is covered.
struct Node {
    std::uint32_t kind;
    std::array<std::uint8_t, 16> addr;
    std::uint32_t len;

    auto operator<=>(const Node &) const = default;
    [[nodiscard]] bool covers(const Node &other) const
    {
        if (kind != other.kind || len > other.len)
            return false;
        for (std::uint32_t bit = 0; bit < len; bit += 8) {
            const std::uint32_t keep = std::min(len - bit, 8U);
            if (((addr.at(bit / 8) ^ other.addr.at(bit / 8)) & (0xff00U >> keep) & 0xffU) != 0)
                return false;
        }
        return true;
    }
};

struct Covered {
    std::uint32_t first = FTCTL_FILTER_NONE; ///< of prefix rules
    std::vector<std::size_t> bits;           ///< of general rules
};

struct General {
    const FilterRule *rule;
    std::uint32_t verdict;
};

constexpr std::uint32_t kLeadsOfOne = 1 << 12; ///< bits that one prefix may set; it is wide if it needs more
constexpr std::uint32_t kBitsOfLead = 64; ///< so many of which one is set: a hash seldom hits it by chance

/// ftctl_filter_set.leads and .wide of all prefixes.
class Leads {
  public:
    void add(const Node &node)
    {
        std::uint32_t first = 0;
        std::memcpy(&first, node.addr.data(), sizeof first);
        first = ntohl(first);
        const std::uint32_t lead_len = ftctl_filter_lead_len(node.kind);
        const std::uint32_t free_bits = lead_len - std::min(node.len, lead_len);
        if (free_bits < 32 && (1U << free_bits) <= kLeadsOfOne &&
            leads_ + (1U << free_bits) <= FTCTL_FILTER_LEADS) {
            leads_ += 1U << free_bits;
            narrow_.push_back({node.kind, first, 1U << free_bits, 32 - lead_len});
        } else {
            const std::uint32_t bytes = node.len >= 8 ? 1 : 1U << (8 - node.len);
            wide_.push_back({node.kind, first, bytes, 24});
        }
    }
    void write(ftctl_filter_set &set) const
    {
        const std::uint32_t want = std::clamp(leads_ * kBitsOfLead, 1024U, FTCTL_FILTER_LEADS);
        set.lead_shift = 32U - static_cast<std::uint32_t>(std::bit_width(want - 1));
        for (const Range &r : narrow_)
            for (std::uint32_t i = 0; i < r.count; i++) {
                const std::uint32_t bit = ftctl_filter_lead(r.kind, r.first + (i << r.step), set.lead_shift);
                set.leads[bit / 32] |= 1U << bit % 32;
            }
        for (const Range &r : wide_)
            for (std::uint32_t i = 0; i < r.count; i++) {
                const std::uint32_t byte = (r.first >> 24) + i;
                set.wide[r.kind][byte / 32] |= 1U << byte % 32;
            }
    }

  private:
    struct Range {
        std::uint32_t kind, first, count, step; ///< count addresses, 1 << step apart
    };
    std::vector<Range> narrow_, wide_;
    std::uint32_t leads_ = 0;
};

Node node_of(const Prefix &prefix, bool dst)
{
    return {ftctl_filter_kind(prefix.addr.family == AF_INET6 ? 6 : 4, dst ? 1 : 0), prefix.addr.bytes,
            prefix.len};
}

class Maker {
  public:
    explicit Maker(const std::vector<FilterRule> &rules) : rules_(rules) {}

    Result<FilterTables> make()
    {
        for (std::uint32_t rank = 0; rank < rules_.size(); rank++) {
            const FilterRule &rule = rules_[rank];
            const std::uint32_t verdict = ftctl_filter_verdict(rank, rule.drop ? 1 : 0);
            out_.rules.push_back(to_abi(rule));
            if (rule.is_prefix()) {
                auto &first = nodes_[node_of(rule.src ? *rule.src : *rule.dst, !rule.src)].first;
                first = std::min(first, verdict);
            } else {
                general_.push_back({&rule, verdict});
            }
        }
        if (general_.size() > FTCTL_FILTER_GENERAL)
            return too_many("general rules", general_.size(), FTCTL_FILTER_GENERAL);
        ftctl_filter_set &set = *out_.set;
        set.general = static_cast<std::uint32_t>(general_.size());
        set.rules = static_cast<std::uint32_t>(rules_.size());
        for (std::size_t bit = 0; bit < general_.size(); bit++) {
            const auto &[rule, verdict] = general_[bit];
            set.rule[bit] = verdict;
            set.inner |= rule->inner ? 1U : 0U;
            if (rule->src)
                nodes_[node_of(*rule->src, false)].bits.push_back(bit);
            if (rule->dst)
                nodes_[node_of(*rule->dst, true)].bits.push_back(bit);
        }
        if (nodes_.size() > FTCTL_FILTER_PREFIXES)
            return too_many("prefixes", nodes_.size(), FTCTL_FILTER_PREFIXES);
        addresses();
        ports(0, &FilterRule::sport);
        ports(1, &FilterRule::dport);
        protocols();
        if (auto done = devices(); !done)
            return tl::unexpected(done.error());
        if (masks_.count() > FTCTL_FILTER_MASKS)
            return too_many("combinations of rules", masks_.count(), FTCTL_FILTER_MASKS);
        set.used_masks = static_cast<std::uint32_t>(masks_.count());
        return std::move(out_);
    }

  private:
    static tl::unexpected<Error> too_many(const char *what, std::size_t count, std::size_t limit)
    {
        return fail("filter",
                    std::to_string(count) + " " + what + "; there is room for " + std::to_string(limit),
                    "rules with src or dst alone do not count as general rules");
    }

    /// The general rules that a predicate holds for.
    template <typename Holds>
    Bits bits_where(Holds holds)
    {
        Bits bits{};
        for (std::size_t bit = 0; bit < general_.size(); bit++)
            if (holds(*general_[bit].rule))
                set_bit(bits, bit);
        return bits;
    }

    void addresses()
    {
        const std::array<Bits, 2> any = {bits_where([](const FilterRule &r) { return !r.src; }),
                                         bits_where([](const FilterRule &r) { return !r.dst; })};
        for (std::size_t dst = 0; dst < 2; dst++)
            out_.set->any_addr[dst] = masks_.index(any.at(dst));
        struct Level {
            const Node *node;
            std::uint32_t first;
            Bits bits;
            std::uint16_t mask;
        };
        Leads leads;
        std::vector<Level> around; // from the widest prefix to the narrowest
        out_.prefixes.reserve(nodes_.size());
        for (const auto &[node, own] : nodes_) {
            while (!around.empty() && !around.back().node->covers(node))
                around.pop_back();
            Level level{&node, FTCTL_FILTER_NONE, any.at(node.kind & 1), out_.set->any_addr[node.kind & 1]};
            if (!around.empty()) {
                level = around.back();
                level.node = &node;
            }
            level.first = std::min(level.first, own.first);
            for (const std::size_t bit : own.bits)
                set_bit(level.bits, bit);
            if (!own.bits.empty())
                level.mask = masks_.index(level.bits);
            ftctl_filter_key key{};
            key.prefixlen = 32 + node.len;
            key.kind = htonl(node.kind);
            std::memcpy(key.addr.w, node.addr.data(), node.addr.size());
            out_.prefixes.emplace_back(key, ftctl_filter_hit{level.first, level.mask});
            out_.set->kinds |= 1U << node.kind;
            leads.add(node);
            around.push_back(level);
        }
        leads.write(*out_.set);
    }

    void ports(std::size_t side, std::optional<PortRange> FilterRule::*range)
    {
        const Bits any = bits_where([&](const FilterRule &r) { return !(r.*range); });
        out_.set->no_port[side] = masks_.index(any);
        std::set<std::uint32_t> edges{0, 65536};
        for (const auto &[rule, verdict] : general_) {
            if (!(rule->*range))
                continue;
            edges.insert((rule->*range)->first);
            edges.insert((rule->*range)->last + 1U);
        }
        for (auto it = edges.begin(); std::next(it) != edges.end(); ++it) {
            const std::uint32_t from = *it, to = *std::next(it);
            const Bits bits = bits_where([&](const FilterRule &r) {
                const auto &ports = r.*range;
                return !ports || (ports->first <= from && from <= ports->last);
            });
            std::fill(&out_.set->port[side][from], &out_.set->port[side][0] + to, masks_.index(bits));
        }
    }

    void protocols()
    {
        for (const bool inner : {false, true}) {
            std::map<std::uint8_t, bool> named;
            for (const auto &[rule, verdict] : general_)
                if (rule->inner == inner && rule->proto)
                    named[*rule->proto] = true;
            const auto mask = [&](std::optional<std::uint8_t> proto) {
                return masks_.index(bits_where(
                    [&](const FilterRule &r) { return r.inner == inner && (!r.proto || r.proto == proto); }));
            };
            const std::uint16_t others = mask(std::nullopt);
            for (unsigned proto = 0; proto < 256; proto++)
                out_.set->proto[inner ? 1 : 0][proto] = named.count(static_cast<std::uint8_t>(proto)) > 0
                                                            ? mask(static_cast<std::uint8_t>(proto))
                                                            : others;
        }
    }

    Status devices()
    {
        std::set<std::string> names;
        for (const auto &[rule, verdict] : general_)
            if (!rule->dev.empty())
                names.insert(rule->dev);
        if (names.size() > FTCTL_FILTER_DEVICES)
            return too_many("devices", names.size(), FTCTL_FILTER_DEVICES);
        const auto mask = [&](const std::string &name) {
            return masks_.index(
                bits_where([&](const FilterRule &r) { return r.dev.empty() || r.dev == name; }));
        };
        out_.set->other_slot = mask("");
        std::fill(std::begin(out_.set->slot), std::end(out_.set->slot), out_.set->other_slot);
        for (const std::string &name : names) {
            ftctl_filter_device &device = out_.set->device[out_.set->devices++];
            std::memcpy(device.name, name.data(),
                        std::min<std::size_t>(name.size(), sizeof(device.name) - 1));
            device.mask = mask(name);
        }
        return {};
    }

    const std::vector<FilterRule> &rules_;
    FilterTables out_{{}, std::make_unique<ftctl_filter_set>(), {}};
    std::map<Node, Covered> nodes_;
    std::vector<General> general_;
    Masks masks_{*out_.set};
};

} // namespace

Result<FilterTables> make_filter_tables(const std::vector<FilterRule> &rules)
{
    return Maker(rules).make();
}

} // namespace ftctl
