#pragma once

#include <string_view>

namespace lockstep::lessons {

/// The text that ships with the lesson; the build makes it from text.txt.
std::string_view lesson_text();

}  // namespace lockstep::lessons
