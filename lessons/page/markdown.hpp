#pragma once

#include <string_view>

#include "lessons/page/document.hpp"

namespace lockstep::lessons {

/// Reads Markdown: CommonMark, with GitHub's tables. HTML and comments are left out; an
/// image becomes its text.
Document read_markdown(std::string_view text);

}  // namespace lockstep::lessons
