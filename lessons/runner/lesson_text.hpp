#pragma once

#include <string_view>

namespace lockstep::lessons {

/// The text that lessons train on; the build makes it from
/// lessons/01_gradient_accumulation/text.txt.
std::string_view lesson_text();

}  // namespace lockstep::lessons
