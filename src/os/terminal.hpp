#pragma once

namespace lockstep::os {

inline constexpr int kPipeColumns = 80;

/// Returns whether the file is a terminal that understands cursor movement (TERM is not
/// "dumb").
bool is_clever_terminal(int descriptor);

/// Returns whether to write in colour: only if the file is a clever terminal and NO_COLOR
/// (no-color.org) is not set.
bool wants_colour(int descriptor);

/// Returns the columns of the terminal's window, at least 20. If the terminal does not
/// say, returns COLUMNS, else 80. If the file is no terminal, returns 80, so that a
/// transcript is the same on every machine.
int window_columns(int descriptor);

/// Returns the rows of the terminal's window, at least 5. If the terminal does not say,
/// returns LINES, else 24.
int window_rows(int descriptor);

/// If the program was started without some standard streams, opens /dev/null for them.
/// Otherwise a file opened later would take their place. Reading from such an input and
/// writing to such an output still fail, as before.
void guard_standard_streams();

}  // namespace lockstep::os
