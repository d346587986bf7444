#pragma once

#include <string_view>

#include "lessons/page/document.hpp"

namespace lockstep::lessons {

/// Reads Markdown: CommonMark, with the tables of GitHub. HTML and comments are left out;
/// of an image its text stays.
Document read_markdown(std::string_view text);

}  // namespace lockstep::lessons
