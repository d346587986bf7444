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

// A learner's own files or pipes. Each function that loads one calls read_text_input
// (src/report/files.hpp) with this limit, and also throws its exceptions.

/// A text as a character-level language model reads it.
struct Text {
    std::u32string vocabulary;      ///< the text's distinct code points, ascending
    std::vector<std::int32_t> ids;  ///< each character's index in the vocabulary
};

/// Reads a UTF-8 file, without a byte order mark at its beginning. Throws UsageError in
/// one sentence if it is not UTF-8 (a NUL counts as binary), or shorter than
/// `least_characters`.
Text load_text(const std::filesystem::path& path, std::int64_t least_characters = 1);

/// As load_text, from bytes in memory; `name` is their name in messages.
Text read_text(std::string_view bytes, const std::string& name,
               std::int64_t least_characters = 1);

/// Returns the entropy in nats per character if each character is drawn only by its
/// frequency, independent of the characters before.
double unigram_entropy(const Text& text);

/// Returns the text that lessons train on. The build makes it from
/// lessons/01_gradient_accumulation/text.txt.
std::string_view lesson_text();

/// A table of numbers.
struct NumberTable {
    std::vector<std::string> columns;  ///< names; "column 3" if the file has none
    HostTensor values;                 ///< (rows, columns), f64
};

/// Reads numeric CSV as spreadsheets and pandas write it (RFC 4180). The separator is the
/// first of tab, semicolon and comma that is in the first row. Cells may be quoted; lines
/// end in LF or CRLF. A UTF-8 byte order mark and blank lines at the end are ignored. If
/// a cell of the first row is text, that row is a header.
///
/// Throws UsageError if the file is empty, if a row has more or fewer cells than the
/// first, or if a cell is empty, text, NaN or infinite: "prices.csv, row 17, column 3
/// (price): 'abc' is not a number". A row's number is the number of its line in the file.
NumberTable load_csv(const std::filesystem::path& path);

/// As load_csv, from bytes in memory; `name` is their name in messages.
NumberTable read_csv(std::string_view bytes, const std::string& name);

}  // namespace lockstep::lessons
