#include "src/text/utf8.hpp"

#include <fmt/format.h>

namespace lockstep {

namespace {

/// The meaning of a character's first byte: how many bytes follow, the bits of the
/// character in this byte, and the least value that needs this number of bytes.
struct Lead {
    std::size_t following;
    char32_t bits;
    char32_t least;
};

Lead lead_of(unsigned char byte) {
    if (byte < 0x80) return {0, byte, 0};
    if ((byte & 0xE0) == 0xC0) return {1, static_cast<char32_t>(byte & 0x1F), 0x80};
    if ((byte & 0xF0) == 0xE0) return {2, static_cast<char32_t>(byte & 0x0F), 0x800};
    if ((byte & 0xF8) == 0xF0) return {3, static_cast<char32_t>(byte & 0x07), 0x10000};
    return {0, 0,
            1};  // a continuation, or no byte of UTF-8: the value 0 is below `least`
}

}  // namespace

CodePoint decode_utf8(std::string_view text, std::size_t at) {
    constexpr CodePoint kInvalid{0xFFFD, 1, false};
    const Lead lead = lead_of(static_cast<unsigned char>(text[at]));
    if (at + lead.following >= text.size()) return kInvalid;

    char32_t value = lead.bits;
    for (std::size_t i = 1; i <= lead.following; ++i) {
        const auto byte = static_cast<unsigned char>(text[at + i]);
        if ((byte & 0xC0) != 0x80) return kInvalid;
        value = value << 6 | (byte & 0x3F);
    }
    const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (value < lead.least || surrogate || value > 0x10FFFF) return kInvalid;
    return {value, lead.following + 1, true};
}

std::string encode_utf8(char32_t character) {
    const auto continued = [&](int shift) {
        return static_cast<char>(0x80U | ((character >> shift) & 0x3FU));
    };
    if (character < 0x80) return {static_cast<char>(character)};
    if (character < 0x800)
        return {static_cast<char>(0xC0U | (character >> 6)), continued(0)};
    if (character < 0x10000)
        return {static_cast<char>(0xE0U | (character >> 12)), continued(6), continued(0)};
    return {static_cast<char>(0xF0U | (character >> 18)), continued(12), continued(6),
            continued(0)};
}

namespace {

bool is_control(char32_t value) {
    return value < 0x20 || (value >= 0x7F && value < 0xA0);
}

bool is_unseen(char32_t value) {
    const bool turns_around = value == 0x061C || value == 0x200E || value == 0x200F ||
                              (value >= 0x202A && value <= 0x202E) ||
                              (value >= 0x2066 && value <= 0x2069);
    const bool breaks_lines = value == 0x2028 || value == 0x2029;
    const bool has_no_width = value == 0x200B || (value >= 0x2060 && value <= 0x2064) ||
                              value == 0xFEFF || (value >> 12) == 0xE0;
    const bool never_in_xml = value == 0xFFFE || value == 0xFFFF;
    return turns_around || breaks_lines || has_no_width || never_in_xml;
}

}  // namespace

std::string shown_character(std::string_view text, std::size_t at) {
    const CodePoint point = decode_utf8(text, at);
    if (!point.valid)
        return fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    if (is_control(point.value))
        return fmt::format("\\x{:02x}", static_cast<unsigned>(point.value));
    if (is_unseen(point.value))
        return fmt::format("\\u{{{:x}}}", static_cast<unsigned>(point.value));
    return std::string(text.substr(at, point.bytes));
}

std::string printable(std::string_view text) {
    std::string clean;
    for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at).bytes)
        clean += text[at] == '\n' || text[at] == '\r' ? " " : shown_character(text, at);
    return clean;
}

}  // namespace lockstep
