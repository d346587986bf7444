#include "src/comm/operation_log.hpp"

#include "src/comm/wire_fields.hpp"
#include "src/core/require.hpp"

namespace lockstep {

template <>
inline constexpr std::int64_t kLast<LoggedCall::Kind> =
    static_cast<std::int64_t>(LoggedCall::Kind::split);

template <typename Line>
void fields(Line& line, LoggedCall& call) {
    line(static_cast<CommRequest&>(call), call.kind, call.communicator, call.work,
         call.split);
}

void OperationLog::add(LoggedCall call) {
    calls_.push_back(std::move(call));
    if (calls_.size() <= kMostCalls) return;
    calls_.pop_front();
    complete_ = false;
}

std::int64_t OperationLog::launched(int communicator,
                                    std::span<const CommOperation> operations) {
    const std::lock_guard lock(mutex_);
    for (const CommOperation& operation : operations)
        add({operation, LoggedCall::Kind::launch, communicator, launches_, {}});
    if (!operations.empty()) inside_launch_ = operations.back().at;
    return launches_++;
}

void OperationLog::launch_returned() {
    const std::lock_guard lock(mutex_);
    inside_launch_.reset();
}

namespace {

LoggedCall wait_for(std::int64_t work, SourceLine at) {
    LoggedCall call;
    call.kind = LoggedCall::Kind::wait;
    call.work = work;
    call.at = at;
    return call;
}

}  // namespace

void OperationLog::waited(std::int64_t work, SourceLine at) {
    const std::lock_guard lock(mutex_);
    add(wait_for(work, at));
}

int OperationLog::split(int communicator, const SplitRequest& request, SourceLine at) {
    LoggedCall call;
    call.kind = LoggedCall::Kind::split;
    call.communicator = communicator;
    call.split = request;
    call.at = at;
    const std::lock_guard lock(mutex_);
    add(std::move(call));
    return ++communicators_;
}

void OperationLog::ended() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
}

std::string OperationLog::bytes() const {
    WireWriter out;
    const std::lock_guard lock(mutex_);
    RankLog log{ranks_, {calls_.begin(), calls_.end()}, ended_, complete_};
    if (inside_launch_) log.calls.push_back(wait_for(launches_ - 1, *inside_launch_));
    out(log);
    return std::move(out.bytes());
}

RankLog read_log(const std::string& bytes) {
    try {
        WireReader in(bytes);
        RankLog log = in.get<RankLog>();
        in.end();
        return log;
    } catch (const WireError&) {
        throw UsageError("these bytes are no log of operations");
    }
}

std::string text_of(const LoggedCall& call) {
    if (call.kind == LoggedCall::Kind::wait) return "wait";
    if (call.kind == LoggedCall::Kind::split) return "split";
    return text_of(static_cast<const CommRequest&>(call));
}

}  // namespace lockstep
