#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lessons {

/// A piece of a line of code, to be coloured.
struct CodePiece {
    enum class Kind { plain, keyword, comment, literal, added, removed };
    Kind kind = Kind::plain;
    std::string text;
};

/// Takes a line of code apart. `language` is "cpp" or "diff"; of others nothing stands
/// out.
std::vector<CodePiece> code_pieces(std::string_view line, std::string_view language);

}  // namespace lockstep::lessons
