#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A row of a CSV file, without quotes and without spaces around cells.
struct CsvRow {
    int line = 0;  ///< the line of the file where the row begins, from 1
    std::vector<std::string> cells;
};

/// Reads CSV text row by row; blank lines at the end do not count. The separator is a tab
/// if the first non-empty line has one outside quotes and round brackets; else a
/// semicolon, if the line has one there; else a comma.
class CsvReader {
  public:
    /// Error messages call the text `name`. The text must outlive the reader.
    CsvReader(std::string_view text, std::string name);

    /// Returns false at the end. Throws UsageError if a quote is not closed, or if text
    /// follows a closing quote.
    bool next(CsvRow& row);

  private:
    std::string cell(std::size_t column);
    /// Inside quotes, a doubled quote stands for one quote, and a cell may have several
    /// lines.
    std::string quoted(std::size_t column);
    std::size_t end_of_cell() const;
    bool take(char c);

    std::string_view text_;
    std::string name_;
    char separator_;
    std::size_t at_ = 0;
    int line_ = 1;
};

}  // namespace lockstep
