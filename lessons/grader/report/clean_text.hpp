#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::lessons {

/// How much of a text is shown.
struct TextLimit {
    std::size_t bytes = 0;
    std::size_t lines = 0;
};

/// A text that any program may have written, as every format can hold it: UTF-8 whose
/// only control character is the line break. Tabs become spaces up to the next eighth
/// column. Bytes that are no UTF-8 become "\xff"; control characters "\x1b"; what turns
/// the direction of writing around, and what XML 1.0 has no place for, "\u{202e}". White
/// space at the end goes.
///
/// What lies beyond the limit is left out, and a last line says so; the result is at most
/// some 80 bytes longer than the limit. The cost depends on the limit, not on the text.
std::string clean_lines(std::string_view text, TextLimit limit);

/// The same on one line: line breaks become spaces, and "…" stands for what is left out.
std::string clean_line(std::string_view text, std::size_t limit_bytes);

}  // namespace lockstep::lessons
