#include "lessons/page/code_look.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace lockstep::lessons {

namespace {

constexpr std::array<std::string_view, 42> kKeywords{
    "auto",      "bool",     "break",    "case",     "class",    "const",  "constexpr",
    "continue",  "default",  "do",       "double",   "else",     "enum",   "explicit",
    "false",     "final",    "float",    "for",      "if",       "inline", "int",
    "namespace", "nullptr",  "operator", "override", "private",  "public", "return",
    "sizeof",    "static",   "struct",   "switch",   "template", "this",   "throw",
    "true",      "typename", "using",    "virtual",  "void",     "while",  "static_cast"};

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Returns the end of the literal whose quotation mark is at `at`.
std::size_t end_of_literal(std::string_view line, std::size_t at) {
    const char mark = line[at];
    for (++at; at < line.size() && line[at] != mark; ++at)
        if (line[at] == '\\') ++at;
    return std::min(at + 1, line.size());
}

using Kind = CodePiece::Kind;

/// Removes the first piece from a line of C++, and returns the piece.
CodePiece next_piece(std::string_view& line) {
    std::size_t end = 1;
    Kind kind = Kind::plain;
    if (line.starts_with("//")) {
        end = line.size();
        kind = Kind::comment;
    } else if (line[0] == '"' || line[0] == '\'') {
        end = end_of_literal(line, 0);
        kind = Kind::literal;
    } else if (is_word(line[0])) {
        while (end < line.size() && is_word(line[end]))
            ++end;
        if (std::ranges::find(kKeywords, line.substr(0, end)) != kKeywords.end())
            kind = Kind::keyword;
    }
    CodePiece piece{kind, std::string(line.substr(0, end))};
    line.remove_prefix(end);
    return piece;
}

Kind kind_of_changed(std::string_view line) {
    return line.starts_with('+')   ? Kind::added
           : line.starts_with('-') ? Kind::removed
                                   : Kind::plain;
}

}  // namespace

std::vector<CodePiece> code_pieces(std::string_view line, std::string_view language) {
    if (language == "diff") return {{kind_of_changed(line), std::string(line)}};
    if (language != "cpp") return {{Kind::plain, std::string(line)}};
    std::vector<CodePiece> pieces;
    while (!line.empty()) {
        CodePiece piece = next_piece(line);
        if (!pieces.empty() && pieces.back().kind == piece.kind)
            pieces.back().text += piece.text;
        else
            pieces.push_back(std::move(piece));
    }
    return pieces;
}

}  // namespace lockstep::lessons
