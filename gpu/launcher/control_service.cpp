#include "gpu/launcher/control_service.hpp"

#include <algorithm>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

namespace lockstep::gpu {

Clock::time_point after(Clock::time_point start, double seconds) {
    return start + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(seconds));
}

void ControlService::run() noexcept {
    try {
        loop();
    } catch (const std::exception& error) {
        const int rank = shared_.placement.rank;
        shared_.stop(
            {rank, 1,
             fmt::format("the control line of rank {} broke: {}", rank, error.what())});
    }
    while (!shared_.leaving()) {
        end_hung_process(Clock::now());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

void ControlService::loop() {
    do {
        wait_and_transfer();
        for (Message& post : shared_.take_posts())
            act_on(std::move(post));
        const auto now = Clock::now();
        if (shared_.watch.stalled(now)) report_stall();
        serve(now);
        end_hung_process(now);
    } while (!shared_.leaving() || !finished(Clock::now()));
}

void ControlService::wait_and_transfer() {
    Clock::time_point due = next_due();
    if (shared_.watch.watching())
        due = std::min(due, Clock::now() + shared_.watch.interval());
    if (shared_.stopped() && !shared_.leaving()) due = std::min(due, shared_.grace_end());

    std::vector<pollfd> waits = {{shared_.waker.number(), POLLIN, 0},
                                 {listener(), POLLIN, 0}};
    const std::vector<Connection*> lines = connections();
    for (const Connection* line : lines)
        waits.push_back({line->number(), line->events(), 0});
    poll(waits.data(), waits.size(), due == kNever ? -1 : milliseconds_until(due));
    if (waits[0].revents) calm(shared_.waker);
    for (size_t i = 0; i < lines.size(); ++i) {
        if (waits[i + 2].revents & POLLOUT) lines[i]->flush();
        if (waits[i + 2].revents & ~POLLOUT) lines[i]->receive();
    }
}

void ControlService::end_hung_process(Clock::time_point now) noexcept {
    if (!shared_.stopped() || shared_.leaving() || now < shared_.grace_end()) return;
    const Failure failure = shared_.failure();
    if (shared_.claim_text()) {
        const std::string& text = failure.text;
        for (size_t sent = 0; sent < text.size();) {
            const ssize_t wrote =
                write(STDERR_FILENO, text.data() + sent, text.size() - sent);
            if (wrote <= 0) break;
            sent += static_cast<size_t>(wrote);
        }
    }
    _exit(failure.status);
}

}  // namespace lockstep::gpu
