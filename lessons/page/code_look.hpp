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

/// Splits a line of code into pieces. Unless `language` is "cpp" or "diff", the line is
/// one plain piece.
std::vector<CodePiece> code_pieces(std::string_view line, std::string_view language);

}  // namespace lockstep::lessons
