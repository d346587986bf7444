#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lessons {

// Widths are columns of a terminal: an ideograph takes two, a combining accent none.
// Texts hold no tabs and no escape sequences.

int display_width(std::string_view text);

/// How many bytes of `text` fit into `width` columns; at least one character.
std::size_t bytes_in_columns(std::string_view text, int width);

/// A paragraph as lines of at most `width` columns. Any white space is a place to break,
/// and so are the two sides of an ideograph; a longer word is broken where it must be.
std::vector<std::string> wrap(std::string_view paragraph, int width);

/// A line that stays as it is if it fits; else broken in its second half, behind a comma
/// or at a space where there is one, with what follows indented by four more columns.
std::vector<std::string> fold(std::string_view line, int width);

/// With spaces up to `width` columns, behind the text or before it.
std::string pad_right(std::string_view text, int width);
std::string pad_left(std::string_view text, int width);

std::vector<std::string> split_lines(std::string_view text);

}  // namespace lockstep::lessons
