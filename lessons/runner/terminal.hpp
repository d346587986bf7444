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

/// Progress of something long; shown on a terminal only, once it has taken a second.
class Progress {
  public:
    virtual ~Progress() = default;
    /// `done` of the total so far; cheap, so it may be called often.
    virtual void advance(std::int64_t done) = 0;
};

/// Shows progress as a line "what  45 %" on standard error, if that is a terminal; else
/// it shows nothing. The line appears after a second, changes at most ten times a second,
/// and is gone when the object is. `total` is what advance() will count to.
std::unique_ptr<Progress> show_progress(const std::string& what, std::int64_t total);
/// The same, to be told how many are done.
std::function<void(int done)> advancing(const std::string& what, std::int64_t total);

/// What a learner can ask for at a prompt; and that the window has another size.
enum class Key { next, back, step, all, quit, help, resized };

/// Returns what a key means: Enter and Space, b, n, s, q or Ctrl-D, ?; none of others.
std::optional<Key> key_called(char key);

/// Shows a prompt on the terminal and waits for one of its keys. The prompt is gone
/// afterwards. While it waits, keys arrive singly and unseen; whatever ends or suspends
/// the wait (Ctrl-C, Ctrl-Z, SIGTERM, SIGHUP) first gives the terminal back as it was,
/// and then acts as it would have. A terminal that is gone counts as q.
Key wait_for_key(std::string_view prompt);

/// Shows a prompt and reads a line with the terminal's own editing. Returns none at the
/// end of input.
std::optional<std::string> ask_line(const std::string& prompt);

}  // namespace lockstep::lessons
