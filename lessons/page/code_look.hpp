#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lessons {

/// A piece of a line of code, for colouring.
struct CodePiece {
    enum class Kind { plain, keyword, comment, literal, added, removed };
    Kind kind = Kind::plain;
    std::string text;
};

/// Splits a line of code into pieces. `language` is "cpp" or "diff"; in other languages,
/// the whole line is plain.
std::vector<CodePiece> code_pieces(std::string_view line, std::string_view language);

}  // namespace lockstep::lessons
