#include "lessons/grader/report/clean_text.hpp"

#include <fmt/format.h>

#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::size_t kTabColumns = 8;

bool is_control(char32_t value) {
    return value < 0x20 || (value >= 0x7F && value < 0xA0);
}

bool is_unwelcome(char32_t value) {
    const bool turns_around = value == 0x200E || value == 0x200F ||
                              (value >= 0x202A && value <= 0x202E) ||
                              (value >= 0x2066 && value <= 0x2069);
    const bool breaks_lines = value == 0x2028 || value == 0x2029;
    const bool never_in_xml = value == 0xFFFE || value == 0xFFFF;
    return turns_around || breaks_lines || never_in_xml;
}

/// Any character but a line break and a tab.
std::string shown(std::string_view text, std::size_t at, const CodePoint& point) {
    if (!point.valid)
        return fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    if (is_control(point.value))
        return fmt::format("\\x{:02x}", static_cast<unsigned>(point.value));
    if (is_unwelcome(point.value))
        return fmt::format("\\u{{{:x}}}", static_cast<unsigned>(point.value));
    return std::string(text.substr(at, point.bytes));
}

std::string_view without_white_end(std::string_view text) {
    return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

}  // namespace

std::string clean_lines(std::string_view text, TextLimit limit) {
    text = without_white_end(text);
    std::string clean;
    std::size_t lines = 1;
    std::size_t column = 0;
    for (std::size_t at = 0; at < text.size();) {
        if (clean.size() >= limit.bytes || lines > limit.lines) {
            clean.erase(without_white_end(clean).size());
            return clean +
                   fmt::format("\n[these are the first {} of {} bytes]", at, text.size());
        }
        const CodePoint point = decode_utf8(text, at);
        const std::string_view here = text.substr(at);
        at += point.bytes;
        if (here.substr(0, 2) == "\r\n") continue;  // the line break follows
        if (point.value == '\n' || point.value == '\r') {
            clean += '\n';
            ++lines;
            column = 0;
        } else if (point.value == '\t') {
            const std::size_t spaces = kTabColumns - column % kTabColumns;
            clean.append(spaces, ' ');
            column += spaces;
        } else {
            clean += shown(here, 0, point);
            ++column;
        }
    }
    return clean;
}

std::string clean_line(std::string_view text, std::size_t limit_bytes) {
    text = without_white_end(text);
    std::string clean;
    for (std::size_t at = 0; at < text.size();) {
        if (clean.size() >= limit_bytes) return clean + "…";
        const CodePoint point = decode_utf8(text, at);
        const bool space =
            point.value == '\n' || point.value == '\r' || point.value == '\t';
        clean += space ? " " : shown(text, at, point);
        at += point.bytes;
    }
    return clean;
}

}  // namespace lockstep::lessons
