// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/kernel_log.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <string_view>
#include <vector>

#include <bpf/libbpf.h>
#include <spdlog/spdlog.h>

namespace ftctl::bpf {
namespace {

// A verifier log can be megabytes; only its end tells why a program was refused.
constexpr std::size_t kKeep = 64 * 1024;

thread_local LogCapture *current_capture = nullptr;

std::string_view trimmed(std::string_view line)
{
    while (!line.empty() && (line.back() == '\n' || line.back() == ' ' || line.back() == '\r'))
        line.remove_suffix(1);
    while (!line.empty() && line.front() == ' ')
        line.remove_prefix(1);
    return line;
}

std::vector<std::string_view> lines_of(std::string_view text)
{
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view line = trimmed(text.substr(0, end));
        if (!line.empty())
            lines.push_back(line);
        if (end == std::string_view::npos)
            break;
        text.remove_prefix(end + 1);
    }
    return lines;
}

// vsnprintf twice: messages carry whole verifier logs, and a cut one would hide the reason.
std::string formatted(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    std::array<char, 512> small{};
    const int need = std::vsnprintf(small.data(), small.size(), format, args);
    std::string text;
    if (need >= 0 && static_cast<std::size_t>(need) < small.size()) {
        text.assign(small.data(), static_cast<std::size_t>(need));
    } else if (need > 0) {
        text.resize(static_cast<std::size_t>(need));
        std::vsnprintf(text.data(), text.size() + 1, format, again);
    }
    va_end(again);
    return text;
}

int print_message(libbpf_print_level, const char *format, va_list args)
{
    if (current_capture == nullptr && !spdlog::should_log(spdlog::level::debug))
        return 0;
    const std::string text = formatted(format, args);
    capture_append(text.data(), text.size());
    if (spdlog::should_log(spdlog::level::debug))
        spdlog::debug("{}", trimmed(text));
    return static_cast<int>(text.size());
}

} // namespace

void capture_append(const char *text, std::size_t len)
{
    if (current_capture == nullptr)
        return;
    std::string &kept = current_capture->text_;
    kept.append(text, len);
    if (kept.size() > kKeep)
        kept.erase(0, kept.size() - kKeep);
}

void route_libbpf_messages()
{
    libbpf_set_print(print_message);
}

LogCapture::LogCapture() : outer_(current_capture)
{
    current_capture = this;
}

LogCapture::~LogCapture()
{
    current_capture = outer_;
}

std::string LogCapture::extack() const
{
    // libbpf's netlink code prints extack with these words (libbpf_nla_dump_errormsg).
    constexpr std::string_view kMark = "Kernel error message: ";
    for (std::string_view line : lines_of(text_)) {
        if (const std::size_t at = line.find(kMark); at != std::string_view::npos)
            return std::string(trimmed(line.substr(at + kMark.size())));
    }
    return {};
}

std::string LogCapture::load_error() const
{
    const std::vector<std::string_view> lines = lines_of(text_);
    for (std::size_t i = lines.size(); i > 1; --i) {
        const std::string_view line = lines[i - 1];
        // The verifier closes its log with statistics; the line before them is the refusal.
        if (line.starts_with("processed ") || line.find("END PROG LOAD LOG") != std::string_view::npos) {
            const std::string_view before = lines[i - 2];
            if (!before.starts_with("processed ") && before.find("LOAD LOG") == std::string_view::npos)
                return std::string(before);
        }
    }
    return lines.empty() ? std::string() : std::string(lines.back());
}

} // namespace ftctl::bpf
