#pragma once

#include <string_view>

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

inline constexpr int kPipeColumns = 80;

/// Whether the file is a terminal that understands cursor movement (TERM is not "dumb").
bool is_clever_terminal(int descriptor);

/// Whether colour is welcome there: a clever terminal, and no NO_COLOR (no-color.org).
bool wants_colour(int descriptor);

/// Columns of the terminal's window; COLUMNS where it does not say, else 80; at least 20.
/// Where the file is no terminal, 80: a transcript is the same on every machine.
int window_columns(int descriptor);

/// Opens /dev/null in place of standard streams that the program was started without, so
/// that no file that it opens becomes one of them. Writing to them goes on to fail.
void guard_standard_streams();

using os::write_all;

/// Writes to standard output.
void print(std::string_view text);

}  // namespace lockstep::lessons
