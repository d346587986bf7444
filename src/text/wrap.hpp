#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Widths are columns of a terminal: an ideograph takes two, a combining accent takes
// none. Texts have no tabs and no escape sequences.

/// Returns the number of columns of UTF-8 text.
int columns_of(std::string_view text);

/// Returns how many bytes of `text` fit into `width` columns, at least one character's.
std::size_t bytes_in_columns(std::string_view text, int width);

/// Returns a paragraph as lines of at most `width` columns. Lines break at white space
/// and on both sides of an ideograph. A word that is too long is broken inside.
std::vector<std::string> wrap(std::string_view paragraph, int width);

/// Returns the text in lines of at most `width` columns, broken at spaces. A longer word
/// stays whole, and runs of spaces are kept. The first line begins with `first`, the
/// others with `rest`. The result ends with a newline; it is empty if the text is empty.
std::string wrapped(std::string_view text, int width, std::string_view first = "",
                    std::string_view rest = "");

/// Returns a line as it is if it fits. Otherwise breaks it in its second half, behind a
/// comma or at a space if there is one. The lines that follow are indented by four more
/// columns.
std::vector<std::string> fold(std::string_view line, int width);

/// Returns code in lines of at most `width` columns. If a statement has a line that is
/// too long, its lines after the first are not aligned, but indented by four columns more
/// than the first. Lines that are still too long are folded.
std::vector<std::string> fold_code(std::string_view code, int width);

/// Return the text, filled with spaces up to `width` columns. pad_right puts the spaces
/// after the text, pad_left before it.
std::string pad_right(std::string_view text, int width);
std::string pad_left(std::string_view text, int width);

std::vector<std::string> split_lines(std::string_view text);

}  // namespace lockstep
