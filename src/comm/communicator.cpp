#include "src/comm/communicator.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "src/comm/aliasing.hpp"
#include "src/core/no_count.hpp"
#include "src/core/require.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep {

namespace {

/// Requires that `whole` has `parts` times as many elements as `part`, of the same type.
void require_parts(const char* verb, const char* whole_name, const Tensor& whole,
                   const char* part_name, const Tensor& part, std::int64_t parts,
                   SourceLine at) {
    require(whole && part, at, "{}: this rank passed no {}", verb,
            whole ? part_name : whole_name);
    require(whole.dtype() == part.dtype() && whole.elements() == parts * part.elements(),
            at,
            "{}: the {} has {} x {}; {} x {} is expected, that is {} times the {}'s {} "
            "elements",
            verb, whole_name, whole.elements(), whole.dtype(), parts * part.elements(),
            part.dtype(), parts, part_name, part.elements());
}

}  // namespace

void Communicator::refuse_foreign(const CommOperation& operation,
                                  const Tensor& tensor) const {
    throw UsageError(
        fmt::format("{}: rank {} was given a tensor of {}; a rank passes tensors of its "
                    "own device",
                    name_of(operation.verb), rank_,
                    tensor.device() == nullptr
                        ? std::string("a device that is gone")
                        : fmt::format("device {}", tensor.device()->index())),
        operation.at);
}

void Communicator::refuse_peer(const CommOperation& operation) const {
    throw UsageError(fmt::format("{}: {} {} is not a rank of {}, whose ranks are 0 to {}",
                                 name_of(operation.verb),
                                 is_point_to_point(operation.verb) ? "peer" : "root",
                                 operation.peer, name_, size_ - 1),
                     operation.at);
}

void Communicator::complete_collective(CommOperation& operation) const {
    const VerbFacts& facts = facts_of(operation.verb);
    const SourceLine at = operation.at;
    require(operation.verb != Verb::split, at, "start: call split() for a split");
    require(operation.verb != Verb::copy, at,
            "start: call Device::start_copy() for a copy between device and host");
    if (!facts.moves()) {
        static_cast<CommRequest&>(operation) = {.verb = operation.verb, .at = at};
        for (Tensor* buffer : {&operation.output, &operation.input})
            if (*buffer) *buffer = Tensor();
        return;
    }
    require_own(operation, operation.output);
    require_own(operation, operation.input);
    const Tensor& any = operation.input ? operation.input : operation.output;
    require(static_cast<bool>(any), at, "{}: rank {} passed no tensor", facts.name,
            rank_);
    operation.dtype = any.dtype();
    if (facts.has_root())
        require_peer(operation);
    else
        operation.peer = -1;
    if (facts.has_one_buffer())
        set_one_buffer(operation);
    else
        fit_two_buffers(operation);
    if (!facts.reduces) {
        operation.reduction = Reduction::sum;
        return;
    }
    require(operation.reduction != Reduction::mean || is_floating(operation.dtype), at,
            "{}: a mean of {} values is not an integer; use sum", facts.name,
            name_of(operation.dtype));
}

void Communicator::complete_message(CommOperation& operation) const {
    const bool sends = operation.verb == Verb::send;
    const Tensor& buffer = sends ? operation.input : operation.output;
    Tensor& other = sends ? operation.output : operation.input;
    if (other) other = Tensor();
    require_own(operation, buffer);
    require(static_cast<bool>(buffer), operation.at, "{}: rank {} passed no tensor",
            name_of(operation.verb), rank_);
    require_peer(operation);
    operation.dtype = buffer.dtype();
    operation.count = buffer.elements();
    operation.reduction = Reduction::sum;
}

void Communicator::set_one_buffer(CommOperation& operation) const {
    const VerbFacts& facts = facts_of(operation.verb);
    if (!operation.input) operation.input = operation.output;
    const bool gets =
        facts.to == VerbFacts::Who::others || facts.writes(operation.peer == rank_);
    operation.output = gets ? operation.input : Tensor();
    operation.count = operation.input.elements();
}

void Communicator::fit_two_buffers(CommOperation& operation) const {
    const VerbFacts& facts = facts_of(operation.verb);
    const Tensor& input = operation.input;
    const Tensor& output = operation.output;
    const Tensor& block = facts.scatters() ? output : input;
    const SourceLine at = operation.at;
    require(block || !facts.has_root(), at, "{}: rank {} passed no {}", facts.name, rank_,
            facts.scatters() ? "output" : "input");
    // A rank that is not the root of a gather or scatter passes only its own block.
    const bool has_both = !facts.has_root() || operation.peer == rank_;
    if (has_both && facts.scatters())
        require_parts(facts.name, "input", input, "output", output, size_, at);
    else if (has_both)
        require_parts(facts.name, "output", output, "input", input,
                      facts.gathers() ? size_ : 1, at);
    operation.count = block.elements();
    if (facts.gathers() || facts.scatters() || facts.input == VerbFacts::Holds::whole)
        return;
    require(operation.count % size_ == 0, at,
            "{}: {} elements cannot be split into equal blocks for {} ranks", facts.name,
            operation.count, size_);
    operation.count /= size_;
}

Work Communicator::start(CommOperation operation) {
    complete(operation);
    return launch(operation);
}

Work Communicator::launch(CommOperation& operation) {
    if (group_open_) [[unlikely]]  // checked first: name_of() costs more
        refuse_inside_group(name_of(operation.verb), operation.at);
    require_apart(operation, rank_, name_);
    if (is_point_to_point(operation.verb) && operation.peer == rank_) [[unlikely]]
        refuse_own(operation);
    return do_launch({&operation, 1}, operation.at);
}

Work Communicator::all_reduce(const Tensor& buffer, Reduction reduction, SourceLine at) {
    return all_reduce(buffer, buffer, reduction, at);
}

Work Communicator::all_reduce(const Tensor& output, const Tensor& input,
                              Reduction reduction, SourceLine at) {
    return start(
        {{.verb = Verb::all_reduce, .reduction = reduction, .at = at}, output, input});
}

Work Communicator::all_gather(const Tensor& output, const Tensor& input, SourceLine at) {
    return start({{.verb = Verb::all_gather, .at = at}, output, input});
}

Work Communicator::reduce_scatter(const Tensor& output, const Tensor& input,
                                  Reduction reduction, SourceLine at) {
    return start({{.verb = Verb::reduce_scatter, .reduction = reduction, .at = at},
                  output,
                  input});
}

Work Communicator::broadcast(const Tensor& buffer, int root, SourceLine at) {
    return start({{.verb = Verb::broadcast, .peer = root, .at = at}, {}, buffer});
}

Work Communicator::reduce(const Tensor& buffer, int root, Reduction reduction,
                          SourceLine at) {
    return start({{.verb = Verb::reduce, .reduction = reduction, .peer = root, .at = at},
                  {},
                  buffer});
}

Work Communicator::gather(const Tensor& output, const Tensor& input, int root,
                          SourceLine at) {
    return start({{.verb = Verb::gather, .peer = root, .at = at}, output, input});
}

Work Communicator::scatter(const Tensor& output, const Tensor& input, int root,
                           SourceLine at) {
    return start({{.verb = Verb::scatter, .peer = root, .at = at}, output, input});
}

Work Communicator::all_to_all(const Tensor& output, const Tensor& input, SourceLine at) {
    return start({{.verb = Verb::all_to_all, .at = at}, output, input});
}

Work Communicator::send(const Tensor& input, int peer, SourceLine at) {
    return start({{.verb = Verb::send, .peer = peer, .at = at}, {}, input});
}

Work Communicator::recv(const Tensor& output, int peer, SourceLine at) {
    return start({{.verb = Verb::recv, .peer = peer, .at = at}, output});
}

Work Communicator::barrier(SourceLine at) {
    CommOperation barrier{{.verb = Verb::barrier, .at = at}};  // nothing to complete
    return launch(barrier);
}

// NCCL has no all-to-all of unequal blocks, so this is a group of sends and recvs, as in
// PyTorch's all_to_all_single with split sizes. Empty blocks are posted, too, so that a
// peer that expects rows instead is reported.

namespace {

/// Requires one count for each rank. No count may be negative, and they must add up to
/// the tensor's rows.
void require_counts(const char* name, const std::vector<std::int64_t>& counts,
                    const char* tensor_name, const Tensor& tensor, int size,
                    SourceLine at) {
    require(counts.size() == static_cast<std::size_t>(size), at,
            "all_to_all_v: {} has {} counts; {} are expected, one for each rank", name,
            counts.size(), size);
    std::int64_t rest = tensor.shape()[0];
    for (std::size_t peer = 0; peer < counts.size(); ++peer) {
        require(counts[peer] >= 0, at, "all_to_all_v: {}[{}] is negative: {}{}", name,
                peer, counts[peer], hint_of_no_count(counts[peer]));
        require(counts[peer] <= rest, at,
                "all_to_all_v: {} add up to more than the {} rows of the {}, at {}[{}]",
                name, tensor.shape()[0], tensor_name, name, peer);
        rest -= counts[peer];
    }
    require(rest == 0, at, "all_to_all_v: {} add up to {}, but the {} has {} rows", name,
            tensor.shape()[0] - rest, tensor_name, tensor.shape()[0]);
}

}  // namespace

Work Communicator::all_to_all_v(const Tensor& output,
                                const std::vector<std::int64_t>& recv_counts,
                                const Tensor& input,
                                const std::vector<std::int64_t>& send_counts,
                                SourceLine at) {
    require_no_open_group("all_to_all_v", at);
    require(input && output, at, "all_to_all_v: rank {} passed no {}", rank_,
            input ? "output" : "input");
    for (const Tensor* tensor : {&input, &output})
        require(tensor->shape().dimensions() > 0, at,
                "all_to_all_v: a scalar has no rows to send or receive");
    require(!input.overlaps(output), at, "all_to_all_v: input and output share memory");
    require_counts("send_counts", send_counts, "input", input, size_, at);
    require_counts("recv_counts", recv_counts, "output", output, size_, at);
    return do_all_to_all_v(output, recv_counts, input, send_counts, at);
}

Work Communicator::do_all_to_all_v(const Tensor& output,
                                   const std::vector<std::int64_t>& recv_counts,
                                   const Tensor& input,
                                   const std::vector<std::int64_t>& send_counts,
                                   SourceLine at) {
    std::vector<CommOperation> parts;
    parts.reserve(2 * static_cast<std::size_t>(size_));
    const auto add = [&](CommOperation part) {
        complete(part);
        part.all_to_all_v = true;
        parts.push_back(std::move(part));
    };
    std::int64_t begin = 0;
    for (int peer = 0; peer < size_; begin += send_counts[peer++])
        add({{.verb = Verb::send, .peer = peer, .at = at},
             {},
             input.rows(begin, send_counts[peer])});
    begin = 0;
    for (int peer = 0; peer < size_; begin += recv_counts[peer++])
        add({{.verb = Verb::recv, .peer = peer, .at = at},
             output.rows(begin, recv_counts[peer])});
    return do_launch(parts, at);
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
    require(!ranks.empty(), at, "subgroup: the list of members of {} is empty", name);
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

/// Describes how rank `rank` misused a group; `calls` are the rank's calls that show the
/// misuse, in order.
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

void Communicator::refuse_own(const CommOperation& operation) const {
    const bool sends = operation.verb == Verb::send;
    Diagnosis diagnosis = diagnosis_of("F11");
    diagnosis.title = "a message to oneself";
    diagnosis.communicator = name_;
    const std::string rank =
        owner_ == rank_ ? fmt::format("rank {}", owner_)
                        : fmt::format("rank {} (number {} of {})", owner_, rank_, name_);
    diagnosis.sentence = fmt::format(
        "{} {} itself at {}, and the same group has no {} for it, so it would wait for "
        "ever: {} is its own number in {}, whose numbers are 0 to {}",
        rank, sends ? "sends to" : "receives from", operation.at.text(),
        sends ? "recv" : "send", rank_, name_, size_ - 1);
    diagnosis.cause = fmt::format(
        "The rank should probably do the other side's part, or the number is one of "
        "another communicator: each communicator counts its members from 0, so compare a "
        "peer or a source of {} only with {}'s own rank().",
        name_, name_);
    diagnosis.parties.push_back({{owner_}, text_of(operation), "peer", operation.at, {}});
    throw FaultError(std::move(diagnosis));
}

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

Group& Group::add(CommOperation operation) {
    if (started_) [[unlikely]]
        refuse_late(operation.verb, operation.at);
    const VerbFacts& facts = facts_of(operation.verb);
    require(facts.moves(), operation.at,
            "a group has no {}: it accepts only verbs that move values", facts.name);
    communicator_.complete(operation);
    communicator_.grouped_.push_back(std::move(operation));
    return *this;
}

// Builds a message inside the list, without a copy: large simulations make millions.
Group& Group::add_message(Verb verb, const Tensor& buffer, int peer, SourceLine at) {
    if (started_) [[unlikely]]
        refuse_late(verb, at);
    CommOperation& operation = communicator_.grouped_.emplace_back();
    operation.verb = verb;
    operation.peer = peer;
    operation.at = at;
    (verb == Verb::send ? operation.input : operation.output) = buffer;
    try {
        communicator_.complete_message(operation);
    } catch (...) {
        communicator_.grouped_.pop_back();
        throw;
    }
    return *this;
}

Group& Group::send(const Tensor& input, int peer, SourceLine at) {
    return add_message(Verb::send, input, peer, at);
}

Group& Group::recv(const Tensor& output, int peer, SourceLine at) {
    return add_message(Verb::recv, output, peer, at);
}

Group& Group::all_reduce(const Tensor& buffer, Reduction reduction, SourceLine at) {
    return add(
        {{.verb = Verb::all_reduce, .reduction = reduction, .at = at}, buffer, buffer});
}

Group& Group::all_gather(const Tensor& output, const Tensor& input, SourceLine at) {
    return add({{.verb = Verb::all_gather, .at = at}, output, input});
}

Group& Group::reduce_scatter(const Tensor& output, const Tensor& input,
                             Reduction reduction, SourceLine at) {
    return add({{.verb = Verb::reduce_scatter, .reduction = reduction, .at = at},
                output,
                input});
}

Group& Group::broadcast(const Tensor& buffer, int root, SourceLine at) {
    return add({{.verb = Verb::broadcast, .peer = root, .at = at}, {}, buffer});
}

Group& Group::reduce(const Tensor& buffer, int root, Reduction reduction, SourceLine at) {
    return add({{.verb = Verb::reduce, .reduction = reduction, .peer = root, .at = at},
                {},
                buffer});
}

Group& Group::gather(const Tensor& output, const Tensor& input, int root, SourceLine at) {
    return add({{.verb = Verb::gather, .peer = root, .at = at}, output, input});
}

Group& Group::scatter(const Tensor& output, const Tensor& input, int root,
                      SourceLine at) {
    return add({{.verb = Verb::scatter, .peer = root, .at = at}, output, input});
}

Group& Group::all_to_all(const Tensor& output, const Tensor& input, SourceLine at) {
    return add({{.verb = Verb::all_to_all, .at = at}, output, input});
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
    const CommOperation* own = nullptr;  // a message to oneself
    int sends = 0;
    for (const CommOperation& operation : communicator_.grouped_) {
        if (operation.peer != communicator_.rank_) continue;
        if (!is_point_to_point(operation.verb)) continue;
        own = &operation;
        sends += operation.verb == Verb::send ? 1 : -1;
    }
    if (own != nullptr && sends != 0) communicator_.refuse_own(*own);
    Work work = communicator_.do_launch(communicator_.grouped_, at_);
    communicator_.grouped_.clear();
    return work;
}

}  // namespace lockstep
