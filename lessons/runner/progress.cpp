#include "lessons/runner/progress.hpp"

#include <algorithm>
#include <chrono>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/terminal.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

class SilentProgress : public Progress {
  public:
    void advance(std::int64_t) override {}
};

class LineProgress : public Progress {
  public:
    LineProgress(std::string what, std::int64_t total)
        : what_(std::move(what)), total_(total) {}
    ~LineProgress() override { erase(); }
    LineProgress(const LineProgress&) = delete;
    LineProgress& operator=(const LineProgress&) = delete;

    void advance(std::int64_t done) override {
        const Clock::time_point now = Clock::now();
        if (now < next_) return;
        next_ = now + 100ms;
        const double share =
            total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 0;
        const std::string line =
            fmt::format("{}  {:.0f} %", what_, 100 * std::clamp(share, 0., 1.));
        // One column stays free: a full line would make the terminal begin another.
        const int room = window_columns(STDERR_FILENO) - 1;
        const std::string fits = line.substr(0, bytes_in_columns(line, room));
        write("\r" + pad_right(fits, shown_));
        shown_ = columns_of(fits);
    }

  private:
    void erase() const {
        if (shown_ > 0) write("\r" + pad_right("", shown_) + "\r");
    }

    /// A terminal that is gone is no reason to stop.
    static void write(const std::string& text) {
        [[maybe_unused]] const ssize_t written =
            ::write(STDERR_FILENO, text.data(), text.size());
    }

    std::string what_;
    std::int64_t total_;
    int shown_ = 0;
    Clock::time_point next_ = Clock::now() + 1s;
};

}  // namespace

std::unique_ptr<Progress> show_progress(const std::string& what, std::int64_t total) {
    if (!is_clever_terminal(STDERR_FILENO)) return std::make_unique<SilentProgress>();
    return std::make_unique<LineProgress>(what, total);
}

}  // namespace lockstep::lessons
