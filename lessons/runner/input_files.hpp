#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

inline constexpr std::size_t kLargestInputBytes = std::size_t{64} << 20;

// A learner brings these: files, or pipes. Each of the functions that load one throws
// what read_text_input in src/report/files.hpp says, with this limit.

/// A text as a character-level language model reads it.
struct Text {
    std::u32string vocabulary;      ///< its distinct code points, ascending
    std::vector<std::int32_t> ids;  ///< each character's place in the vocabulary
};

/// Reads a UTF-8 file; a byte order mark at its begin is not part of the text. Throws
/// UsageError with one sentence if it is no UTF-8 (a NUL counts as binary), or shorter
/// than `least_characters`.
Text load_text(const std::filesystem::path& path, std::int64_t least_characters = 1);

/// Reads bytes in memory as load_text does; `name` is what messages call them.
Text read_text(std::string_view bytes, const std::string& name,
               std::int64_t least_characters = 1);

/// Returns nats a character if each is drawn by its frequency alone, without looking at
/// those before.
double unigram_entropy(const Text& text);

/// Returns the text that lessons train on; the build makes it from
/// lessons/01_gradient_accumulation/text.txt.
std::string_view lesson_text();

/// A table of numbers.
struct NumberTable {
    std::vector<std::string> columns;  ///< names; "column 3" if the file has none
    HostTensor values;                 ///< (rows, columns), f64
};

/// Reads numeric CSV as spreadsheets and pandas write it (RFC 4180): separated by tab,
/// semicolon or comma, whichever the first row has, in this order; cells may be quoted;
/// lines end in LF or CRLF; a UTF-8 byte order mark and blank lines at the end are
/// ignored. The first row is a header if a cell of it is text.
///
/// Throws UsageError if it is empty, a row has more or fewer cells than the first, or a
/// cell is empty, text, NaN or infinite: "prices.csv, row 17, column 3 (price): 'abc' is
/// not a number". A row's number is that of its line in the file.
NumberTable load_csv(const std::filesystem::path& path);

/// Reads bytes in memory as load_csv does; `name` is what messages call them.
NumberTable read_csv(std::string_view bytes, const std::string& name);

}  // namespace lockstep::lessons
