#include "gpu/launcher/control.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "gpu/launcher/control_service.hpp"
#include "src/core/require.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::gpu {

namespace {

/// The time in which rank 0's main thread can claim the text.
constexpr double kClaimSeconds = 0.5;

/// Returns the text as whole lines, and control characters in it as escapes: the text may
/// be another process's.
std::string whole_lines(const std::string& text) {
    std::string lines;
    for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).bytes)
        lines += text[at] == '\n' ? "\n" : shown_character(text, at);
    if (!lines.empty() && !lines.ends_with('\n')) lines += '\n';
    return lines;
}

/// One end of the control line, with the thread that serves it.
class ControlLine final : public ControlShared {
  public:
    ControlLine(const Placement& place, const ControlOptions& patience)
        : ControlShared(place, patience),
          service_(place.rank == 0 ? make_root(*this) : make_member(*this)),
          thread_([this] { service_->run(); }) {}

    ~ControlLine() override {
        leave();
        thread_.join();
    }

  private:
    std::unique_ptr<ControlService> service_;
    std::thread thread_;
};

}  // namespace

RunStopped::RunStopped(Failure failure)
    : std::runtime_error(failure.text), failure_(std::move(failure)) {}

std::unique_ptr<Control> Control::join(const Placement& placement,
                                       const ControlOptions& options) {
    require_secret(placement);
    auto line = std::make_unique<ControlLine>(placement, options);
    line->await_welcome();
    return line;
}

ControlShared::ControlShared(const Placement& place, const ControlOptions& patience)
    : Control(place),
      options(patience),
      watch(patience.timeout_seconds),
      waker(os::make_waker()),
      speaks_(place.rank == 0) {}

// The main thread's side.

void ControlShared::await_welcome() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return welcome_ || failure_; });
    if (welcome_) return;
    if (!missing_) throw_stop();
    seen_at_ = Clock::now();
    throw MissingError(failure_->text.substr(0, failure_->text.size() - 1));
}

void ControlShared::leave() {
    leaving_ = true;
    wake(waker);
}

std::vector<std::string> ControlShared::all_gather(const std::string& mine) {
    return exchange(MessageKind::all_gather, mine);
}

std::string ControlShared::broadcast(const std::string& bytes) {
    return exchange(MessageKind::broadcast, rank() == 0 ? bytes : std::string()).front();
}

/// Takes part in an exchange and returns its result, a list.
std::vector<std::string> ControlShared::exchange(MessageKind kind,
                                                 const std::string& mine) {
    require(mine.size() <= kLongestPart,
            "a process can send at most {} bytes to the others at once, not {}",
            kLongestPart, mine.size());
    const StallWatch::Pause pause(watch);
    check();
    {
        const std::lock_guard lock(mutex_);
        ++sequence_;
        result_.reset();
    }
    post(Message(kind, mine, sequence_));
    Bytes list;
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return result_ || failure_; });
        if (!result_) throw_stop();
        list = result_->body;
        result_.reset();
    }
    auto all = unpack<std::vector<std::string>>(*list);
    if (all.size() != (kind == MessageKind::broadcast ? 1 : static_cast<size_t>(size())))
        throw ProtocolError("rank 0 sent the bytes of another number of processes");
    return all;
}

void ControlShared::begin_watching() {
    watch.begin();
    wake(waker);
}

void ControlShared::set_describe(Describe describe) {
    const std::lock_guard lock(callbacks_);
    describe_ = std::move(describe);
}

void ControlShared::set_explain(Explain explain) {
    const std::lock_guard lock(callbacks_);
    explain_ = std::move(explain);
}

void ControlShared::fail(const Failure& failure) noexcept {
    post({MessageKind::failure, pack_failure(failure)});
}

void ControlShared::post(Message message) {
    {
        const std::lock_guard lock(mutex_);
        posts_.push_back(std::move(message));
    }
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

// The control thread's side.

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
    if (result.sequence != sequence_)
        throw ProtocolError("the result of another exchange");
    result_ = result;
    changed_.notify_all();
}

void ControlShared::stop(Failure failure, bool missing) {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure.text = whole_lines(failure.text);
    failure_ = std::move(failure);
    missing_ = missing;
    if (missing) claimed_ = true;  // join() throws the failure
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
        // Without an explanation, the text has the descriptions as they are.
    }
    std::string text =
        fmt::format("lockstep: rank {} has made no progress for {:g} seconds\n", stalled,
                    options.timeout_seconds);
    for (size_t rank = 0; rank < descriptions.size(); ++rank)
        if (!descriptions[rank].empty())
            text += fmt::format("  rank {}: {}\n", rank, descriptions[rank]);
    return text;
}

// Both sides'.

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
