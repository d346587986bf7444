#include "src/comm/communicator.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "src/comm/aliasing.hpp"
#include "src/core/require.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep {

namespace {

/// `whole` must hold `parts` times what `part` holds, of the same type.
void require_parts(const char* verb, const char* whole_name, const Tensor& whole,
                   const char* part_name, const Tensor& part, std::int64_t parts,
                   SourceLine at) {
    require(whole && part, at, "{}: this rank passed no {}", verb,
            whole ? part_name : whole_name);
    require(whole.dtype() == part.dtype() && whole.elements() == parts * part.elements(),
            at,
            "{}: the {} holds {} x {}, expected {} x {}: {} times the {}'s {} "
            "elements",
            verb, whole_name, whole.elements(), whole.dtype(), parts * part.elements(),
            part.dtype(), parts, part_name, part.elements());
}

/// A tensor that every rank of a gather or scatter passes, not only the root.
void require_everywhere(Verb verb, const char* name, const Tensor& tensor, int rank,
                        SourceLine at) {
    require(static_cast<bool>(tensor), at, "{}: rank {} passed no {}", name_of(verb),
            rank, name);
}

}  // namespace

void Work::wait(SourceLine at) {
    require(state_ != nullptr, at, "wait: this Work was moved from");
    state_->wait(at);
}

void Communicator::fill(CommOperation& operation, Verb verb, const Tensor& output,
                        const Tensor& input, SourceLine at) const {
    check_own(verb, output, at);
    check_own(verb, input, at);
    const Tensor& any = input ? input : output;
    require(static_cast<bool>(any), at, "{}: rank {} passed no tensor", name_of(verb),
            rank_);
    operation.verb = verb;
    operation.dtype = any.dtype();
    operation.count = any.elements();
    operation.output = output;
    operation.input = input;
    operation.at = at;
}

void Communicator::check_own(Verb verb, const Tensor& tensor, SourceLine at) const {
    require(!tensor || tensor.device() == &device_, at, [&] {
        return fmt::format(
            "{}: rank {} was given a tensor of {}; a rank passes tensors of its own "
            "device",
            name_of(verb), rank_,
            tensor.device() == nullptr
                ? std::string("a device that is gone")
                : fmt::format("device {}", tensor.device()->index()));
    });
}

void Communicator::set_reduction(CommOperation& operation, Reduction reduction) const {
    require(reduction != Reduction::mean || is_floating(operation.dtype), operation.at,
            "{}: a mean of {} values is not an integer; use sum", name_of(operation.verb),
            name_of(operation.dtype));
    require(operation.dtype != DType::bf16 || !device_.has_numbers(), operation.at,
            "{}: bf16 has no arithmetic yet; only runs that compute shapes only may "
            "reduce it",
            name_of(operation.verb));
    operation.reduction = reduction;
}

void Communicator::set_peer(CommOperation& operation, int peer) const {
    require(peer >= 0 && peer < size_, operation.at,
            "{}: {} {} is not a rank of {}, whose ranks are 0 to {}",
            name_of(operation.verb), has_root(operation.verb) ? "root" : "peer", peer,
            name_, size_ - 1);
    operation.peer = peer;
}

void Communicator::fill_all_reduce(CommOperation& operation, const Tensor& output,
                                   const Tensor& input, Reduction reduction,
                                   SourceLine at) const {
    fill(operation, Verb::all_reduce, output, input, at);
    require_parts("all_reduce", "output", output, "input", input, 1, at);
    set_reduction(operation, reduction);
}

void Communicator::fill_all_gather(CommOperation& operation, const Tensor& output,
                                   const Tensor& input, SourceLine at) const {
    fill(operation, Verb::all_gather, output, input, at);
    require_parts("all_gather", "output", output, "input", input, size_, at);
}

void Communicator::fill_reduce_scatter(CommOperation& operation, const Tensor& output,
                                       const Tensor& input, Reduction reduction,
                                       SourceLine at) const {
    fill(operation, Verb::reduce_scatter, output, input, at);
    require_parts("reduce_scatter", "input", input, "output", output, size_, at);
    operation.count = output.elements();
    set_reduction(operation, reduction);
}

void Communicator::fill_broadcast(CommOperation& operation, const Tensor& buffer,
                                  int root, SourceLine at) const {
    fill(operation, Verb::broadcast, buffer, buffer, at);
    set_peer(operation, root);
}

void Communicator::fill_reduce(CommOperation& operation, const Tensor& buffer, int root,
                               Reduction reduction, SourceLine at) const {
    fill(operation, Verb::reduce, rank_ == root ? buffer : Tensor(), buffer, at);
    set_reduction(operation, reduction);
    set_peer(operation, root);
}

void Communicator::fill_message(CommOperation& operation, Verb verb, const Tensor& buffer,
                                int peer, SourceLine at) const {
    const bool sends = verb == Verb::send;
    check_own(verb, buffer, at);
    require(static_cast<bool>(buffer), at, "{}: rank {} passed no tensor", name_of(verb),
            rank_);
    operation.verb = verb;
    operation.dtype = buffer.dtype();
    operation.count = buffer.elements();
    (sends ? operation.input : operation.output) = buffer;
    operation.at = at;
    set_peer(operation, peer);
}

Work Communicator::all_reduce(const Tensor& buffer, Reduction reduction, SourceLine at) {
    return all_reduce(buffer, buffer, reduction, at);
}

Work Communicator::all_reduce(const Tensor& output, const Tensor& input,
                              Reduction reduction, SourceLine at) {
    CommOperation operation;
    fill_all_reduce(operation, output, input, reduction, at);
    return launch(operation);
}

Work Communicator::all_gather(const Tensor& output, const Tensor& input, SourceLine at) {
    CommOperation operation;
    fill_all_gather(operation, output, input, at);
    return launch(operation);
}

Work Communicator::reduce_scatter(const Tensor& output, const Tensor& input,
                                  Reduction reduction, SourceLine at) {
    CommOperation operation;
    fill_reduce_scatter(operation, output, input, reduction, at);
    return launch(operation);
}

Work Communicator::broadcast(const Tensor& buffer, int root, SourceLine at) {
    CommOperation operation;
    fill_broadcast(operation, buffer, root, at);
    return launch(operation);
}

Work Communicator::reduce(const Tensor& buffer, int root, Reduction reduction,
                          SourceLine at) {
    CommOperation operation;
    fill_reduce(operation, buffer, root, reduction, at);
    return launch(operation);
}

Work Communicator::gather(const Tensor& output, const Tensor& input, int root,
                          SourceLine at) {
    CommOperation operation;
    fill(operation, Verb::gather, output, input, at);
    require_everywhere(Verb::gather, "input", input, rank_, at);
    set_peer(operation, root);
    if (rank_ == root)
        require_parts("gather", "output", output, "input", input, size_, at);
    operation.count = input.elements();
    return launch(operation);
}

Work Communicator::scatter(const Tensor& output, const Tensor& input, int root,
                           SourceLine at) {
    CommOperation operation;
    fill(operation, Verb::scatter, output, input, at);
    require_everywhere(Verb::scatter, "output", output, rank_, at);
    set_peer(operation, root);
    if (rank_ == root)
        require_parts("scatter", "input", input, "output", output, size_, at);
    operation.count = output.elements();
    return launch(operation);
}

Work Communicator::all_to_all(const Tensor& output, const Tensor& input, SourceLine at) {
    CommOperation operation;
    fill(operation, Verb::all_to_all, output, input, at);
    require_parts("all_to_all", "output", output, "input", input, 1, at);
    require(input.elements() % size_ == 0, at,
            "all_to_all: {} elements cannot be dealt out to {} ranks in equal blocks",
            input.elements(), size_);
    operation.count = input.elements() / size_;
    return launch(operation);
}

Work Communicator::send(const Tensor& input, int peer, SourceLine at) {
    CommOperation operation;
    fill_message(operation, Verb::send, input, peer, at);
    return launch(operation);
}

Work Communicator::recv(const Tensor& output, int peer, SourceLine at) {
    CommOperation operation;
    fill_message(operation, Verb::recv, output, peer, at);
    return launch(operation);
}

Work Communicator::barrier(SourceLine at) {
    CommOperation operation;
    operation.verb = Verb::barrier;
    operation.at = at;
    return launch(operation);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key,
                                                  const std::string& name,
                                                  SourceLine at) {
    require(color >= 0 || color == kNoColor, at,
            "split: colour {} of rank {} is negative; kNoColor is {}", color, rank_,
            static_cast<int>(kNoColor));
    return split(SplitRequest{color, key, name, {}, false}, at);
}

std::unique_ptr<Communicator> Communicator::split(const SplitRequest& request,
                                                  SourceLine at) {
    require_no_open_group("split", at);
    return do_split(request, at);
}

std::unique_ptr<Communicator> Communicator::subgroup(const std::vector<int>& ranks,
                                                     const std::string& name,
                                                     SourceLine at) {
    require(!ranks.empty(), at, "subgroup: {} is to have no members", name);
    std::vector<bool> listed(static_cast<std::size_t>(size_));
    for (const int rank : ranks) {
        require(rank >= 0 && rank < size_, at,
                "subgroup: {} is not a rank of {}, whose ranks are 0 to {}", rank, name_,
                size_ - 1);
        require(!listed[rank], at, "subgroup: rank {} is in the list of {} twice", rank,
                name);
        listed[rank] = true;
    }
    const auto place = std::find(ranks.begin(), ranks.end(), rank_);
    const bool member = place != ranks.end();
    const int key = member ? static_cast<int>(place - ranks.begin()) : 0;
    return split(SplitRequest{member ? 0 : kNoColor, key, name, ranks, true}, at);
}

Work Communicator::launch(CommOperation& operation) {
    if (group_open_) [[unlikely]]  // the name costs more than the question
        refuse_inside_group(name_of(operation.verb), operation.at);
    require_apart(operation, rank_, name_);
    return do_launch({&operation, 1}, operation.at);
}

FaultError Communicator::used_after_run(SourceLine made_at, SourceLine at) const {
    const bool world = made_at.line == 0;
    Diagnosis diagnosis = diagnosis_of("F31");
    diagnosis.communicator = name_;
    diagnosis.sentence = fmt::format(
        "rank {} used {}{} at {}, after the run that made it was over", owner_, name_,
        world ? "" : fmt::format(", made at {},", made_at.text()), at.text());
    diagnosis.parties.push_back({{owner_}, "used after the run", "", at, {}});
    if (!world) diagnosis.parties.push_back({{owner_}, "made", "", made_at, {}});
    return FaultError(std::move(diagnosis));
}

// Groups: several operations that start together.

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
