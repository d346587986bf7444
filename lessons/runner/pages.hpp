#pragma once

#include <string_view>

namespace lockstep::lessons {

/// Returns a text that is part of the program, by its path below lessons/: a lesson's
/// page, "glossary.md", "faults/F16.md". Empty if there is none. Texts are built in
/// without a compiler (embed_files.py), so a rebuild after a changed sentence takes half
/// a second.
std::string_view text_called(std::string_view path);

}  // namespace lockstep::lessons
