#include "lessons/runner/stepper.hpp"

#include <fmt/format.h>

#include "lessons/runner/page.hpp"
#include "lessons/runner/terminal.hpp"

namespace lockstep::lessons {

bool Stepper::run() {
    for (std::size_t index = 0; index < steps_.size();) {
        show(index);
        const Key key = waits_ ? wait_for_key(prompt(index), index > 0) : Key::next;
        if (key == Key::quit) break;
        if (key == Key::next) ++index;
        if (key == Key::back) --index;
    }
    return pages_.size() == steps_.size();
}

void Stepper::run_only(int step) {
    SilentPage unseen(record_);
    const auto index = static_cast<std::size_t>(step - 1);
    for (; pages_.size() < index; pages_.emplace_back())
        steps_[pages_.size()].run(unseen);
    show(index);
}

void Stepper::show(std::size_t index) {
    if (index < pages_.size()) {
        print(pages_[index]);
        return;
    }
    TextPage page(style_, record_, print, waits_ ? Ask(ask_line) : nullptr);
    page.heading(
        fmt::format("Step {} of {}: {}", index + 1, steps_.size(), steps_[index].title));
    steps_[index].run(page);
    page.end();
    pages_.push_back(page.shown());
}

std::string Stepper::prompt(std::size_t index) const {
    return fmt::format("[Enter] {}{}  [q] quit",
                       index + 1 < steps_.size() ? "next" : "end",
                       index > 0 ? "  [b] back" : "");
}

}  // namespace lockstep::lessons
