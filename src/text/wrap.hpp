#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Columns that UTF-8 text takes on a terminal; every character counts as one.
int columns_of(std::string_view text);

/// The text in lines of at most `width` columns, broken at spaces; a word that is longer
/// stays whole. `first` opens the first line, `rest` the others. Ends with a newline;
/// empty text is an empty string.
std::string wrapped(std::string_view text, int width, std::string_view first = "",
                    std::string_view rest = "");

}  // namespace lockstep
