// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/json_lines.h"

#include <iterator>
#include <set>
#include <vector>

namespace ftctl {

namespace {

constexpr std::size_t kMaxDepth = 16;

/// Feeds the parser and counts the lines it has taken; the parser's own events carry no position.
class LineIterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char *;
    using reference = const char &;

    LineIterator(const char *at, unsigned *line) : at_(at), line_(line) {}
    reference operator*() const { return *at_; }
    LineIterator &operator++()
    {
        if (*at_ == '\n')
            ++*line_;
        ++at_;
        return *this;
    }
    LineIterator operator++(int)
    {
        auto before = *this;
        ++*this;
        return before;
    }
    bool operator==(const LineIterator &o) const { return at_ == o.at_; }
    bool operator!=(const LineIterator &o) const { return at_ != o.at_; }

  private:
    const char *at_;
    unsigned *line_;
};

/// Records the line of every part.
class LineHandler final : public nlohmann::json_sax<nlohmann::json> {
  public:
    LineHandler(const unsigned &line, std::map<std::string, unsigned> &lines) : line_(line), lines_(lines) {}

    std::string problem; ///< why parsing stopped
    unsigned problem_line = 0;

    bool null() override { return value(); }
    bool boolean(bool /*v*/) override { return value(); }
    bool number_integer(number_integer_t /*v*/) override { return value(); }
    bool number_unsigned(number_unsigned_t /*v*/) override { return value(); }
    bool number_float(number_float_t /*v*/, const string_t & /*s*/) override { return value(); }
    bool string(string_t & /*v*/) override { return value(); }
    bool binary(binary_t & /*v*/) override { return value(); }

    bool start_object(std::size_t /*n*/) override { return open(false); }
    bool start_array(std::size_t /*n*/) override { return open(true); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t &name) override
    {
        auto &top = stack_.back();
        if (!top.keys.insert(name).second)
            return stop("'" + name + "' is given twice");
        top.child = top.pointer + "/" + escaped(name);
        lines_[top.child] = line_;
        return true;
    }
    bool parse_error(std::size_t /*pos*/, const std::string &token,
                     const nlohmann::detail::exception & /*e*/) override
    {
        return stop(token.empty() || token == "<uninitialized>" || token.find('\n') != std::string::npos
                        ? "not valid JSON"
                        : "not valid JSON near '" + token.substr(0, 40) + "'");
    }

  private:
    struct Level {
        std::string pointer;
        std::string child; ///< pointer of the value that comes next, in objects
        bool array = false;
        std::size_t index = 0;
        std::set<std::string> keys;
    };

    static std::string escaped(const std::string &name)
    {
        std::string out;
        for (const char c : name)
            out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
        return out;
    }
    bool stop(std::string why)
    {
        problem = std::move(why);
        problem_line = line_;
        return false;
    }
    /// The pointer of the value that starts now.
    std::string here()
    {
        if (stack_.empty())
            return "";
        auto &top = stack_.back();
        return top.array ? top.pointer + "/" + std::to_string(top.index++) : top.child;
    }
    bool value()
    {
        lines_.emplace(here(), line_);
        return true;
    }
    bool open(bool array)
    {
        if (stack_.size() >= kMaxDepth)
            return stop("nested too deeply");
        Level level;
        level.pointer = here();
        level.array = array;
        lines_.emplace(level.pointer, line_);
        stack_.push_back(std::move(level));
        return true;
    }
    bool close()
    {
        stack_.pop_back();
        return true;
    }

    const unsigned &line_;
    std::map<std::string, unsigned> &lines_;
    std::vector<Level> stack_;
};

} // namespace

unsigned LinedJson::line(const std::string &pointer) const
{
    for (auto p = pointer;; p.resize(p.find_last_of('/'))) {
        if (const auto it = lines.find(p); it != lines.end())
            return it->second;
        if (p.empty() || p.find('/') == std::string::npos)
            return 1;
    }
}

Result<LinedJson> parse_lined(std::string_view text, const std::string &origin)
{
    LinedJson out;
    unsigned line = 1;
    LineHandler handler(line, out.lines);
    const char *end = text.data() + text.size();
    const bool ok = nlohmann::json::sax_parse(LineIterator(text.data(), &line), LineIterator(end, &line),
                                              &handler, nlohmann::json::input_format_t::json,
                                              /*strict=*/true, /*ignore_comments=*/true);
    const char *hint = "JSON; // and /* */ comments are allowed, a comma after the last element is not";
    if (!ok)
        return fail(origin + ":" + std::to_string(handler.problem_line), handler.problem, hint, Code::usage);
    out.json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
    if (out.json.is_discarded())
        return fail(origin, "not valid JSON", hint, Code::usage);
    return out;
}

} // namespace ftctl
