#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// A character read from UTF-8. If the bytes are not valid, `valid` is false, `value` is
/// U+FFFD and `bytes` is 1, so that a reader can continue behind that byte.
struct CodePoint {
    char32_t value = 0;
    std::size_t bytes = 0;
    bool valid = false;
};

/// Returns the character that begins at byte `at`, which must be inside `text`. Overlong
/// forms, surrogates and values above U+10FFFF are refused, as RFC 3629 asks.
CodePoint decode_utf8(std::string_view text, std::size_t at);

/// Returns the bytes of a character.
std::string encode_utf8(char32_t character);

/// Returns the character that begins at byte `at` of somebody else's text, as terminals
/// and reports may show it. These become escapes such as "\x1b" or "\u{202e}": control
/// characters, bytes that are not UTF-8, and characters that nobody sees but that turn
/// the text around, break the line, or are not allowed in XML.
std::string shown_character(std::string_view text, std::size_t at);

/// Returns `text` on one line, for file names and cells in messages: a line break becomes
/// a space, every other character is a shown_character().
std::string printable(std::string_view text);

}  // namespace lockstep
