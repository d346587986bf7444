#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

/// A table of numbers.
struct NumberTable {
    std::vector<std::string> columns;  ///< names; "column 3" where the file has none
    HostTensor values;                 ///< (rows, columns), f64
};

/// Reads numeric CSV as spreadsheets and pandas write it (RFC 4180): separated by tab,
/// semicolon or comma, whichever the first row has, in this order; cells may be quoted;
/// lines end in LF or CRLF; a UTF-8 byte order mark and blank lines at the end are
/// ignored. The first row is a header where a cell of it is text.
///
/// Throws std::system_error with the path where the file cannot be read. Throws
/// UsageError where it is larger than 64 MiB or empty, a row has more or fewer cells than
/// the first, or a cell is empty, text, NaN or infinite: "prices.csv, row 17, column 3
/// (price): 'abc' is not a number". A row's number is that of its line in the file.
NumberTable load_csv(const std::filesystem::path& path);

/// The same of bytes in memory; `name` is what messages call them.
NumberTable read_csv(std::string_view bytes, const std::string& name);

}  // namespace lockstep::lessons
