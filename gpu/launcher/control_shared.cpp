#include "gpu/launcher/control_shared.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

/// What the main thread of rank 0 has to come for the text.
constexpr double kClaimSeconds = 0.5;

}  // namespace

ControlShared::ControlShared(const Placement& placement_, const ControlOptions& options_)
    : placement(placement_),
      options(options_),
      watch(options_.timeout_seconds),
      waker(os::make_waker()),
      speaks_(placement_.rank == 0) {}

void ControlShared::await_welcome() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return welcome_ || failure_; });
    if (welcome_) return;
    if (!missing_) throw_stop();
    seen_at_ = Clock::now();
    throw MissingError(failure_->text.substr(0, failure_->text.size() - 1));
}

std::vector<std::string> ControlShared::exchange(MessageKind kind,
                                                 const std::string& mine) {
    const StallWatch::Pause pause(watch);
    check();
    post(Message(kind, mine, ++sequence_));
    Bytes list;
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return result_ || failure_; });
        if (!result_) throw_stop();
        list = result_->body;
        result_.reset();
    }
    return unpack_list(*list);
}

void ControlShared::post(Message message) {
    {
        const std::lock_guard lock(mutex_);
        posts_.push_back(std::move(message));
    }
    wake(waker);
}

void ControlShared::leave() {
    leaving_ = true;
    wake(waker);
}

void ControlShared::check() const {
    if (!stopped_) return;
    const std::lock_guard lock(mutex_);
    throw_stop();
}

void ControlShared::throw_stop() const {
    if (!seen_at_) seen_at_ = Clock::now();
    throw RunStopped(*failure_);
}

bool ControlShared::claim_text() noexcept {
    if (!speaks_ || !stopped_ || claimed_.exchange(true)) return false;
    wake(waker);
    return true;
}

void ControlShared::set_describe(Control::Describe describe) {
    const std::lock_guard lock(callbacks_);
    describe_ = std::move(describe);
}

void ControlShared::set_explain(Control::Explain explain) {
    const std::lock_guard lock(callbacks_);
    explain_ = std::move(explain);
}

std::deque<Message> ControlShared::take_posts() {
    const std::lock_guard lock(mutex_);
    return std::exchange(posts_, {});
}

void ControlShared::welcome() {
    const std::lock_guard lock(mutex_);
    welcome_ = true;
    changed_.notify_all();
}

void ControlShared::deliver(const Message& result) {
    const std::lock_guard lock(mutex_);
    result_ = result;
    changed_.notify_all();
}

void ControlShared::stop(Failure failure, bool missing) {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    if (!failure.text.empty() && !failure.text.ends_with('\n')) failure.text += '\n';
    failure_ = std::move(failure);
    missing_ = missing;
    if (missing) claimed_ = true;  // join() throws it
    stopped_at_ = Clock::now();
    stopped_ = true;
    changed_.notify_all();
}

std::string ControlShared::describe() {
    const std::lock_guard lock(callbacks_);
    try {
        return describe_ ? describe_() : std::string();
    } catch (const std::exception& error) {
        return error.what();
    }
}

std::string ControlShared::explain(const std::vector<std::string>& descriptions,
                                   int stalled) {
    const std::lock_guard lock(callbacks_);
    try {
        if (explain_) return explain_(descriptions, stalled);
    } catch (const std::exception&) {
        // The bare descriptions say more than a failed explanation.
    }
    return plain_explanation(descriptions, stalled);
}

std::string ControlShared::plain_explanation(const std::vector<std::string>& descriptions,
                                             int stalled) const {
    std::string text =
        fmt::format("lockstep: rank {} has made no progress for {:g} seconds\n", stalled,
                    options.timeout_seconds);
    for (size_t rank = 0; rank < descriptions.size(); ++rank)
        if (!descriptions[rank].empty())
            text += fmt::format("  rank {}: {}\n", rank, descriptions[rank]);
    return text;
}

Failure ControlShared::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_.value_or(Failure{});
}

Clock::time_point ControlShared::grace_end() const {
    const std::lock_guard lock(mutex_);
    return after(std::max(stopped_at_, seen_at_.value_or(stopped_at_)),
                 options.grace_seconds);
}

Clock::time_point ControlShared::text_due() const {
    if (!speaks_ || !stopped_ || claimed_) return kNever;
    const std::lock_guard lock(mutex_);
    if (leaving_) return seen_at_ ? kNever : stopped_at_;
    return after(stopped_at_, std::min(kClaimSeconds, options.grace_seconds));
}

}  // namespace lockstep::gpu
