#pragma once

#include <string>
#include <vector>

#include "lessons/page/document.hpp"
#include "lessons/page/language.hpp"

namespace lockstep::lessons {

/// How pages look as text.
struct TextLook {
    int width = 80;  ///< columns; no line is longer
    bool colour = false;
    Language language = Language::english;
};

/// Returns a block as lines, without a blank line after it. A question is shown without
/// its answer.
std::vector<std::string> lines_of(const Block& block, const TextLook& look);

/// Returns whether a blank line belongs between two blocks; between checks there is none.
bool stand_apart(const Block& block, const Block& next);

/// Returns the lines of all blocks, with blank lines between them.
std::vector<std::string> lines_of(const Document& blocks, const TextLook& look);

/// Returns the text in bold if colours are on.
std::string bold(const std::string& text, const TextLook& look);

}  // namespace lockstep::lessons
