#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lessons {

/// A text as a character-level language model reads it.
struct Text {
    std::u32string vocabulary;      ///< its distinct code points, ascending
    std::vector<std::int32_t> ids;  ///< each character's place in the vocabulary
};

/// Reads a UTF-8 file; a byte order mark at its begin is not part of the text. Throws
/// std::system_error with the path where it cannot be read, and UsageError with one
/// sentence where it is larger than 64 MiB, no UTF-8 (a NUL counts as binary), or shorter
/// than `least_characters`.
Text load_text(const std::filesystem::path& path, std::int64_t least_characters = 1);

/// The same of bytes in memory; `name` is what messages call them.
Text read_text(std::string_view bytes, const std::string& name,
               std::int64_t least_characters = 1);

/// Nats a character if each is drawn by its frequency alone, without looking at those
/// before.
double unigram_entropy(const Text& text);

}  // namespace lockstep::lessons
