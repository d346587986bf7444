#include "gpu/launcher/control_service.hpp"

#include <algorithm>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

namespace lockstep::gpu {

using namespace std::chrono_literals;

void ControlService::run() noexcept {
    // If loop() throws, all processes must still be stopped; the second turn does that.
    for (int turn = 0; turn < 2; ++turn) {
        try {
            return loop();
        } catch (const std::exception& error) {
            break_off(error.what());
        }
    }
    while (!shared_.leaving()) {
        serve_stop();
        std::this_thread::sleep_for(20ms);
    }
    serve_stop();
}

void ControlService::loop() {
    do {
        wait_and_transfer();
        leaving_ = shared_.leaving();
        for (Message& post : shared_.take_posts())
            act_on(std::move(post));
        const auto now = Clock::now();
        if (const std::optional<Pace> pace = shared_.watch.look(now)) report(*pace, now);
        serve(now);
        serve_stop();
    } while (!leaving_ || shared_.text_due() != kNever || !finished(Clock::now()));
}

void ControlService::wait_and_transfer() {
    Clock::time_point due = std::min(next_due(), shared_.text_due());
    if (shared_.watch.watching())
        due = std::min(due, Clock::now() + shared_.watch.interval());
    if (shared_.stopped() && !shared_.leaving()) due = std::min(due, shared_.grace_end());

    std::vector<pollfd> waits = {{shared_.waker.number(), POLLIN, 0},
                                 {listener(), POLLIN, 0}};
    const std::vector<Connection*> lines = connections();
    for (const Connection* line : lines)
        waits.push_back({line->number(), line->events(), 0});
    poll(waits.data(), waits.size(), os::milliseconds_until(due));
    if (waits[0].revents) calm(shared_.waker);
    for (size_t i = 0; i < lines.size(); ++i)
        lines[i]->transfer(waits[i + 2].revents);
}

void ControlService::break_off(const char* reason) noexcept {
    const int rank = shared_.rank();
    const Failure failure = {
        rank, 1,
        fmt::format("lockstep: the control line of rank {} broke: {}", rank, reason)};
    try {
        act_on({MessageKind::failure, pack_failure(failure)});
    } catch (const std::exception&) {
        // The others will notice when this process ends.
    }
    shared_.stop(failure);
}

void ControlService::serve_stop() noexcept {
    const auto now = Clock::now();
    if (now >= shared_.text_due()) print_text();
    if (!shared_.stopped() || shared_.leaving() || now < shared_.grace_end()) return;
    print_text();
    _exit(shared_.failure().status);
}

void ControlService::print_text() noexcept {
    if (!shared_.claim_text()) return;
    try {
        os::write_all(STDERR_FILENO, shared_.failure().text, "standard error");
    } catch (const std::exception&) {
        // Standard error is closed: the text cannot be printed.
    }
}

Heartbeat::Heartbeat(double timeout_seconds)
    : timeout_(os::duration_of(timeout_seconds)),
      interval_(std::clamp<Clock::duration>(timeout_ / 8, 50ms, 1s)) {}

bool Heartbeat::strikes(Clock::time_point now) {
    if (now < due_) return false;
    due_ = now + interval_;
    return true;
}

int Heartbeat::beats_in(Clock::duration time) const {
    return static_cast<int>((time + interval_ - Clock::duration(1)) / interval_);
}

int Heartbeat::patience() const {
    constexpr Clock::duration kLeast = 3s;  // a description may take 2 s
    return beats_in(std::max(timeout_, kLeast));
}

std::string silence_text(int rank) {
    return fmt::format(
        "lockstep: rank {} does not answer: its process is stopped or its machine cannot "
        "be reached",
        rank);
}

}  // namespace lockstep::gpu
