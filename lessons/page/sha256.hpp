#pragma once

#include <string>

namespace lockstep::lessons {

/// Returns 64 hexadecimal digits, as sha256sum prints them.
std::string sha256(const std::string& text);

}  // namespace lockstep::lessons
