#include <exception>

#include <fmt/format.h>

#include "src/comm/aliasing.hpp"
#include "src/comm/communicator.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep {

namespace {

/// A misuse of a group of rank `rank`; `calls` are its calls that show it, in order.
FaultError misuse(int rank, const std::string& communicator, std::string sentence,
                  const std::vector<std::pair<std::string, SourceLine>>& calls) {
    Diagnosis diagnosis = diagnosis_of("F15");
    diagnosis.communicator = communicator;
    diagnosis.sentence = std::move(sentence);
    for (const auto& [call, at] : calls)
        diagnosis.parties.push_back({{rank}, call, "", at, {}});
    return FaultError(std::move(diagnosis));
}

}  // namespace

Group Communicator::group(SourceLine at) {
    require_no_open_group("group", at);
    return Group(*this, at);
}

void Communicator::refuse_inside_group(const char* call, SourceLine at) const {
    throw misuse(
        owner_, name_,
        fmt::format("rank {} calls {}() of {} at {}, inside its group of {} that "
                    "was begun at {} and is not started yet",
                    owner_, call, name_, at.text(), name_, group_at_.text()),
        {{"group()", group_at_}, {fmt::format("{}(), inside that group", call), at}});
}

void Communicator::require_groups_started() const {
    if (!group_open_) return;
    throw misuse(
        owner_, name_,
        fmt::format("rank {} began a group of {} at {} and never started it: its "
                    "{} {} never launched",
                    owner_, name_, group_at_.text(), grouped_.size(),
                    grouped_.size() == 1 ? "operation was" : "operations were"),
        {{"group(), without start()", group_at_}});
}

Group::Group(Communicator& communicator, SourceLine at)
    : communicator_(communicator), at_(at) {
    communicator_.group_open_ = true;
    communicator_.group_at_ = at;
    communicator_.grouped_.clear();
}

Group::~Group() {
    if (started_ || std::uncaught_exceptions() == 0) return;
    communicator_.group_open_ = false;
    communicator_.grouped_.clear();
}

void Group::refuse_late(Verb verb, SourceLine at) const {
    throw misuse(
        communicator_.owner_, communicator_.name_,
        fmt::format("rank {} adds {}() at {} to its group of {} begun at {}, which was "
                    "started at {} already",
                    communicator_.owner_, name_of(verb), at.text(), communicator_.name_,
                    at_.text(), started_at_.text()),
        {{"start() of the group", started_at_},
         {fmt::format("{}(), after that", name_of(verb)), at}});
}

/// Lets `fill` fill an operation of the group; one that it refuses is no part of it.
template <typename Fill>
Group& Group::add(Verb verb, SourceLine at, Fill fill) {
    if (started_) [[unlikely]]
        refuse_late(verb, at);
    CommOperation& operation = communicator_.grouped_.emplace_back();
    try {
        fill(operation);
    } catch (...) {
        communicator_.grouped_.pop_back();
        throw;
    }
    return *this;
}

Group& Group::send(const Tensor& input, int peer, SourceLine at) {
    return add(Verb::send, at, [&](CommOperation& operation) {
        communicator_.fill_message(operation, Verb::send, input, peer, at);
    });
}

Group& Group::recv(const Tensor& output, int peer, SourceLine at) {
    return add(Verb::recv, at, [&](CommOperation& operation) {
        communicator_.fill_message(operation, Verb::recv, output, peer, at);
    });
}

Group& Group::all_reduce(const Tensor& buffer, Reduction reduction, SourceLine at) {
    return add(Verb::all_reduce, at, [&](CommOperation& operation) {
        communicator_.fill_all_reduce(operation, buffer, buffer, reduction, at);
    });
}

Group& Group::all_gather(const Tensor& output, const Tensor& input, SourceLine at) {
    return add(Verb::all_gather, at, [&](CommOperation& operation) {
        communicator_.fill_all_gather(operation, output, input, at);
    });
}

Group& Group::reduce_scatter(const Tensor& output, const Tensor& input,
                             Reduction reduction, SourceLine at) {
    return add(Verb::reduce_scatter, at, [&](CommOperation& operation) {
        communicator_.fill_reduce_scatter(operation, output, input, reduction, at);
    });
}

Group& Group::broadcast(const Tensor& buffer, int root, SourceLine at) {
    return add(Verb::broadcast, at, [&](CommOperation& operation) {
        communicator_.fill_broadcast(operation, buffer, root, at);
    });
}

Group& Group::reduce(const Tensor& buffer, int root, Reduction reduction, SourceLine at) {
    return add(Verb::reduce, at, [&](CommOperation& operation) {
        communicator_.fill_reduce(operation, buffer, root, reduction, at);
    });
}

void Group::refuse_second_start(SourceLine at) const {
    throw misuse(
        communicator_.owner_, communicator_.name_,
        fmt::format(
            "rank {} starts its group of {} begun at {} twice: {}", communicator_.owner_,
            communicator_.name_, at_.text(),
            started_at_ == at
                ? fmt::format("both times at {}, as in a loop", at.text())
                : fmt::format("at {}, and again at {}", started_at_.text(), at.text())),
        {{"start() of the group", started_at_}, {"start(), once more", at}});
}

Work Group::start(SourceLine at) {
    if (started_) [[unlikely]]
        refuse_second_start(at);
    started_ = true;
    started_at_ = at;
    communicator_.group_open_ = false;
    require_apart(communicator_.grouped_, communicator_.rank_, communicator_.name_);
    Work work = communicator_.do_launch(communicator_.grouped_, at_);
    communicator_.grouped_.clear();
    return work;
}

}  // namespace lockstep
