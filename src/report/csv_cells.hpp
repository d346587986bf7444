#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A row of a CSV file, quotes undone and spaces around cells gone.
struct CsvRow {
    int line = 0;  ///< where it begins in the file, from 1
    std::vector<std::string> cells;
};

/// Reads CSV text row by row; blank lines at the end are none. The separator is tab,
/// semicolon or comma, whichever the first line that is not empty has, in this order,
/// outside quotes and round brackets.
class CsvReader {
  public:
    /// `name` is what messages call the text, which must outlive the reader.
    CsvReader(std::string_view text, std::string name);

    /// False at the end. Throws UsageError if a quote is not closed or text follows one.
    bool next(CsvRow& row);

  private:
    std::string cell(std::size_t column);
    /// Inside quotes a doubled one stands for itself, and lines may end.
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
