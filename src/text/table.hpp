#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// A table of text cells; columns of numbers are aligned right.
struct Table {
    std::vector<std::string> head;
    std::vector<std::vector<std::string>> rows;
};

/// A table as lines of text.
struct TableText {
    std::vector<std::string> head;  ///< column names, and the rule below them
    std::vector<std::string> body;
};

/// Lays a table out in `width` columns. If it does not fit, the widest columns of text
/// are wrapped. If not even the table's longest words fit side by side, rows and columns
/// are exchanged. If that does not help, each row becomes a block of lines "name  value".
/// Throws std::logic_error unless each row has the head's number of cells.
TableText table_text(const Table& table, int width);

/// Returns whether a cell counts as a number: "1,024", "-3.5e-7", "12.5 us", "75 %", "–".
bool is_number_cell(const std::string& cell);

}  // namespace lockstep
