#include "src/comm/operation_log.hpp"

#include <nlohmann/json.hpp>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

using Json = nlohmann::json;

Json to_json(const LoggedCall& call) {
    return {static_cast<int>(call.kind),
            call.communicator,
            call.work,
            static_cast<int>(call.verb),
            static_cast<int>(call.reduction),
            static_cast<int>(call.dtype),
            call.peer,
            call.count,
            call.all_to_all_v,
            call.split.color,
            call.split.key,
            call.split.name,
            call.split.members,
            call.split.same_on_all,
            call.at.file,
            call.at.line};
}

LoggedCall from_json(const Json& json) {
    const auto number = [&](std::size_t place) { return json.at(place).get<int>(); };
    LoggedCall call;
    call.kind = static_cast<LoggedCall::Kind>(number(0));
    call.communicator = number(1);
    call.work = json.at(2).get<std::int64_t>();
    call.verb = static_cast<Verb>(number(3));
    call.reduction = static_cast<Reduction>(number(4));
    call.dtype = static_cast<DType>(number(5));
    call.peer = number(6);
    call.count = json.at(7).get<std::int64_t>();
    call.all_to_all_v = json.at(8).get<bool>();
    call.split.color = number(9);
    call.split.key = number(10);
    call.split.name = json.at(11).get<std::string>();
    call.split.members = json.at(12).get<std::vector<int>>();
    call.split.same_on_all = json.at(13).get<bool>();
    call.at = SourceLine::of(json.at(14).get<std::string>(), number(15));
    return call;
}

}  // namespace

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
    return launches_++;
}

void OperationLog::waited(std::int64_t work, SourceLine at) {
    LoggedCall call;
    call.kind = LoggedCall::Kind::wait;
    call.work = work;
    call.at = at;
    const std::lock_guard lock(mutex_);
    add(std::move(call));
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
    Json json{{"ranks", ranks_},
              {"ended", false},
              {"complete", false},
              {"calls", Json::array()}};
    {
        const std::lock_guard lock(mutex_);
        json["ended"] = ended_;
        json["complete"] = complete_;
        for (const LoggedCall& call : calls_)
            json["calls"].push_back(to_json(call));
    }
    std::string bytes;
    Json::to_cbor(json, bytes);
    return bytes;
}

RankLog read_log(const std::string& bytes) {
    try {
        const Json json = Json::from_cbor(bytes);
        RankLog log;
        log.ranks = json.at("ranks").get<int>();
        log.ended = json.at("ended").get<bool>();
        log.complete = json.at("complete").get<bool>();
        for (const Json& call : json.at("calls"))
            log.calls.push_back(from_json(call));
        return log;
    } catch (const Json::exception&) {
        throw UsageError("these bytes are no log of operations");
    }
}

std::string text_of(const LoggedCall& call) {
    if (call.kind == LoggedCall::Kind::wait) return "wait";
    if (call.kind == LoggedCall::Kind::split) return "split";
    return text_of(static_cast<const CommRequest&>(call));
}

}  // namespace lockstep
