#pragma once

namespace lockstep::os {

inline constexpr int kPipeColumns = 80;

/// Returns whether the file is a terminal that understands cursor movement (TERM is not
/// "dumb").
bool is_clever_terminal(int descriptor);

/// Returns whether colour is welcome there: a clever terminal, and no NO_COLOR
/// (no-color.org).
bool wants_colour(int descriptor);

/// Returns the columns of the terminal's window; COLUMNS if it does not say, else 80; at
/// least 20. If the file is no terminal there are 80: a transcript is the same on every
/// machine.
int window_columns(int descriptor);

/// Returns the rows of the terminal's window; LINES if it does not say, else 24; at
/// least 5.
int window_rows(int descriptor);

/// Opens /dev/null in place of standard streams that the program was started without, so
/// that no file that it opens becomes one of them. Writing to them goes on to fail.
void guard_standard_streams();

}  // namespace lockstep::os
