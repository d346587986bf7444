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

/// Returns `text` on one line and without control characters, for file names and cells in
/// messages. Control characters and bytes that are not UTF-8 become escapes such as
/// "\x1b"; a line break becomes a space.
std::string printable(std::string_view text);

}  // namespace lockstep
