#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/os/descriptor.hpp"
#include "src/os/terminal.hpp"

namespace lockstep::lessons {

using os::guard_standard_streams;
using os::is_clever_terminal;
using os::kPipeColumns;
using os::wants_colour;
using os::window_columns;
using os::window_rows;
using os::write_all;

/// Writes to standard output.
void print(std::string_view text);

/// The progress of a long task; shown only on a terminal, after one second.
class Progress {
  public:
    virtual ~Progress() = default;
    /// `done` says how much of the total is finished. Cheap, so it may be called often.
    virtual void advance(std::int64_t done) = 0;
};

/// Shows progress as a line "what  45 %" on standard error if that is a terminal;
/// otherwise shows nothing. The line appears after a second, changes at most ten times a
/// second, and is erased when the object is destroyed. `total` is the largest `done`.
std::unique_ptr<Progress> show_progress(const std::string& what, std::int64_t total);
/// Shows the same line; returns a function to call with the number of finished units.
std::function<void(int done)> advancing(const std::string& what, std::int64_t total);

/// A learner's request at a prompt, or the news that the window has a new size.
enum class Key { next, back, step, all, quit, help, resized };

/// Returns a key's meaning: Enter, Space, b, n, s, q, Ctrl-D or ?; none for other keys.
std::optional<Key> key_called(char key);

/// Shows a prompt on the terminal, waits for a key that has a meaning, and erases the
/// prompt. While it waits, keys arrive one at a time and are not shown. If a signal ends
/// or suspends the wait (Ctrl-C, Ctrl-Z, SIGTERM, SIGHUP), the terminal is first
/// restored, and then the signal acts as usual. If the terminal is closed, returns
/// Key::quit.
Key wait_for_key(std::string_view prompt);

/// Shows a prompt and reads a line with the terminal's own editing. Returns none at the
/// end of input.
std::optional<std::string> ask_line(const std::string& prompt);

}  // namespace lockstep::lessons
