#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::lessons {

/// What a learner can press after a step.
enum class Key { next, back, quit };

/// Shows a prompt on the terminal and waits for one of its keys: Enter, b (where `back`
/// is offered), q or Ctrl-D. The prompt is gone afterwards. While it waits, keys arrive
/// singly and unseen; whatever ends or suspends the wait (Ctrl-C, Ctrl-Z, SIGTERM,
/// SIGHUP) first gives the terminal back as it was, and then acts as it would have. A
/// terminal that is gone counts as q.
Key wait_for_key(std::string_view prompt, bool back);

/// Shows a prompt and reads a line with the terminal's own editing; none at the end of
/// input.
std::optional<std::string> ask_line(const std::string& prompt);

}  // namespace lockstep::lessons
