#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Widths are columns of a terminal: an ideograph takes two, a combining accent none.
// Texts hold no tabs and no escape sequences.

/// Returns the columns that UTF-8 text takes.
int columns_of(std::string_view text);

/// Returns how many bytes of `text` fit into `width` columns; at least one character.
std::size_t bytes_in_columns(std::string_view text, int width);

/// Returns a paragraph as lines of at most `width` columns. Any white space is a place to
/// break, and so are the two sides of an ideograph; a longer word is broken where it must
/// be.
std::vector<std::string> wrap(std::string_view paragraph, int width);

/// Returns the text in lines of at most `width` columns, broken at spaces; a word that is
/// longer stays whole, and several spaces stay several. `first` opens the first line,
/// `rest` the others. It ends with a newline; empty text is an empty string.
std::string wrapped(std::string_view text, int width, std::string_view first = "",
                    std::string_view rest = "");

/// Returns a line as it is if it fits; else broken in its second half, behind a comma or
/// at a space if there is one, with what follows indented by four more columns.
std::vector<std::string> fold(std::string_view line, int width);

/// Returns code in lines of at most `width` columns. If a statement has a line that is
/// too long, all its lines but the first are indented by four columns more than that one,
/// instead of being aligned; what is still too long is folded.
std::vector<std::string> fold_code(std::string_view code, int width);

/// Returns the text with spaces up to `width` columns, behind the text or before it.
std::string pad_right(std::string_view text, int width);
std::string pad_left(std::string_view text, int width);

std::vector<std::string> split_lines(std::string_view text);

}  // namespace lockstep
