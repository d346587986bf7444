#pragma once

#include <string>
#include <vector>

#include "lessons/runner/page.hpp"

namespace lockstep::lessons {

/// A table as lines of text.
struct TableText {
    std::vector<std::string> head;  ///< column names, and the rule below them
    std::vector<std::string> body;
};

/// Lays a table out in `width` columns. Where it does not fit, the widest columns of text
/// are wrapped; where not even its longest words fit side by side, rows and columns are
/// exchanged; and where that does not help, each row becomes a block of lines "name
/// value". Throws std::logic_error where a row has not as many cells as the head.
TableText table_text(const Table& table, int width);

/// Whether a cell counts as a number: "1,024", "-3.5e-7", "12.5 us", "75 %", "–".
bool is_number_cell(const std::string& cell);

}  // namespace lockstep::lessons
