#include "src/comm/communicator.hpp"

#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// `whole` must hold `parts` times what `part` holds, of the same type.
void require_parts(const char* verb, const char* whole_name, const Tensor& whole,
                   const char* part_name, const Tensor& part, std::int64_t parts,
                   SourceLine at) {
    require(whole && part, at, [&] {
        return fmt::format("{}: this rank passed no {}", verb, whole ? part_name : whole_name);
    });
    require(whole.dtype() == part.dtype() && whole.elements() == parts * part.elements(), at, [&] {
        return fmt::format(
            "{}: the {} holds {} x {}, expected {} x {}: {} times the {}'s {} elements", verb,
            whole_name, whole.elements(), name_of(whole.dtype()), parts * part.elements(),
            name_of(part.dtype()), parts, part_name, part.elements());
    });
}

}  // namespace

CommOperation Communicator::checked(Verb verb, const Tensor& output, const Tensor& input,
                                    SourceLine at) const {
    for (const Tensor* tensor : {&output, &input}) {
        if (!*tensor || tensor->device() == &device_) continue;
        require(false, at, [&] {
            return fmt::format("{}: rank {} was given a tensor of {}; a rank passes tensors of its "
                               "own device",
                               name_of(verb), rank_,
                               tensor->device() == nullptr
                                   ? std::string("a device that is gone")
                                   : fmt::format("device {}", tensor->device()->index()));
        });
    }
    const Tensor& any = input ? input : output;
    require(static_cast<bool>(any), at,
            [&] { return fmt::format("{}: rank {} passed no tensor", name_of(verb), rank_); });
    CommOperation operation;
    operation.verb = verb;
    operation.dtype = any.dtype();
    operation.count = any.elements();
    operation.output = output;
    operation.input = input;
    operation.at = at;
    return operation;
}

CommOperation Communicator::reducing(CommOperation operation, Reduction reduction) const {
    require(reduction != Reduction::mean || is_floating(operation.dtype), operation.at, [&] {
        return fmt::format("{}: a mean of {} values is not an integer; use sum",
                           name_of(operation.verb), name_of(operation.dtype));
    });
    operation.reduction = reduction;
    return operation;
}

CommOperation Communicator::towards(CommOperation operation, int peer) const {
    require(peer >= 0 && peer < size_, operation.at, [&] {
        return fmt::format("{}: {} {} is not a rank of {}, whose ranks are 0 to {}",
                           name_of(operation.verb), has_root(operation.verb) ? "root" : "peer",
                           peer, name_, size_ - 1);
    });
    operation.peer = peer;
    return operation;
}

CommOperation Communicator::make_all_reduce(const Tensor& output, const Tensor& input,
                                            Reduction reduction, SourceLine at) const {
    const CommOperation operation = checked(Verb::all_reduce, output, input, at);
    require_parts("all_reduce", "output", output, "input", input, 1, at);
    return reducing(operation, reduction);
}

CommOperation Communicator::make_all_gather(const Tensor& output, const Tensor& input,
                                            SourceLine at) const {
    const CommOperation operation = checked(Verb::all_gather, output, input, at);
    require_parts("all_gather", "output", output, "input", input, size_, at);
    return operation;
}

CommOperation Communicator::make_reduce_scatter(const Tensor& output, const Tensor& input,
                                                Reduction reduction, SourceLine at) const {
    CommOperation operation = checked(Verb::reduce_scatter, output, input, at);
    require_parts("reduce_scatter", "input", input, "output", output, size_, at);
    operation.count = output.elements();
    return reducing(std::move(operation), reduction);
}

CommOperation Communicator::make_broadcast(const Tensor& buffer, int root, SourceLine at) const {
    return towards(checked(Verb::broadcast, buffer, buffer, at), root);
}

CommOperation Communicator::make_reduce(const Tensor& buffer, int root, Reduction reduction,
                                        SourceLine at) const {
    const Tensor output = rank_ == root ? buffer : Tensor();
    return towards(reducing(checked(Verb::reduce, output, buffer, at), reduction), root);
}

CommOperation Communicator::make_send(const Tensor& input, int peer, SourceLine at) const {
    return towards(checked(Verb::send, Tensor(), input, at), peer);
}

CommOperation Communicator::make_recv(const Tensor& output, int peer, SourceLine at) const {
    return towards(checked(Verb::recv, output, Tensor(), at), peer);
}

Work Communicator::all_reduce(const Tensor& buffer, Reduction reduction, SourceLine at) {
    return launch(make_all_reduce(buffer, buffer, reduction, at));
}

Work Communicator::all_reduce(const Tensor& output, const Tensor& input, Reduction reduction,
                              SourceLine at) {
    return launch(make_all_reduce(output, input, reduction, at));
}

Work Communicator::all_gather(const Tensor& output, const Tensor& input, SourceLine at) {
    return launch(make_all_gather(output, input, at));
}

Work Communicator::reduce_scatter(const Tensor& output, const Tensor& input, Reduction reduction,
                                  SourceLine at) {
    return launch(make_reduce_scatter(output, input, reduction, at));
}

Work Communicator::broadcast(const Tensor& buffer, int root, SourceLine at) {
    return launch(make_broadcast(buffer, root, at));
}

Work Communicator::reduce(const Tensor& buffer, int root, Reduction reduction, SourceLine at) {
    return launch(make_reduce(buffer, root, reduction, at));
}

Work Communicator::gather(const Tensor& output, const Tensor& input, int root, SourceLine at) {
    CommOperation operation = towards(checked(Verb::gather, output, input, at), root);
    if (rank_ == root) require_parts("gather", "root's output", output, "input", input, size_, at);
    operation.count = input.elements();
    return launch(operation);
}

Work Communicator::scatter(const Tensor& output, const Tensor& input, int root, SourceLine at) {
    CommOperation operation = towards(checked(Verb::scatter, output, input, at), root);
    if (rank_ == root)
        require_parts("scatter", "root's input", input, "output", output, size_, at);
    operation.count = output.elements();
    return launch(operation);
}

Work Communicator::all_to_all(const Tensor& output, const Tensor& input, SourceLine at) {
    CommOperation operation = checked(Verb::all_to_all, output, input, at);
    require_parts("all_to_all", "output", output, "input", input, 1, at);
    require(input.elements() % size_ == 0, at, [&] {
        return fmt::format("all_to_all: {} elements cannot be dealt out to {} ranks in equal blocks",
                           input.elements(), size_);
    });
    operation.count = input.elements() / size_;
    return launch(operation);
}

Work Communicator::send(const Tensor& input, int peer, SourceLine at) {
    return launch(make_send(input, peer, at));
}

Work Communicator::recv(const Tensor& output, int peer, SourceLine at) {
    return launch(make_recv(output, peer, at));
}

Work Communicator::barrier(SourceLine at) {
    CommOperation operation;
    operation.verb = Verb::barrier;
    operation.at = at;
    return launch(operation);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, const std::string& name,
                                                  SourceLine at) {
    require(color >= 0 || color == kNoColor, at, [&] {
        return fmt::format("split: colour {} of rank {} is negative; kNoColor is {}", color, rank_,
                           static_cast<int>(kNoColor));
    });
    require_no_open_group(at);
    return do_split(color, key, name, at);
}

Work Communicator::launch(const CommOperation& operation) {
    require_no_open_group(operation.at);
    return do_launch({&operation, 1}, operation.at);
}

void Communicator::require_no_open_group(SourceLine at) const {
    require(!group_open_, at, [&] {
        return fmt::format("rank {} used {} while its group begun at {} was not started", rank_,
                           name_, group_at_.text());
    });
}

Group Communicator::group(SourceLine at) {
    require_no_open_group(at);
    return Group(*this, at);
}

Group::Group(Communicator& communicator, SourceLine at) : communicator_(communicator) {
    communicator_.group_open_ = true;
    communicator_.group_at_ = at;
    communicator_.grouped_.clear();
}

Group& Group::send(const Tensor& input, int peer, SourceLine at) {
    communicator_.grouped_.push_back(communicator_.make_send(input, peer, at));
    return *this;
}

Group& Group::recv(const Tensor& output, int peer, SourceLine at) {
    communicator_.grouped_.push_back(communicator_.make_recv(output, peer, at));
    return *this;
}

Group& Group::all_reduce(const Tensor& buffer, Reduction reduction, SourceLine at) {
    communicator_.grouped_.push_back(
        communicator_.make_all_reduce(buffer, buffer, reduction, at));
    return *this;
}

Group& Group::all_gather(const Tensor& output, const Tensor& input, SourceLine at) {
    communicator_.grouped_.push_back(communicator_.make_all_gather(output, input, at));
    return *this;
}

Group& Group::reduce_scatter(const Tensor& output, const Tensor& input, Reduction reduction,
                             SourceLine at) {
    communicator_.grouped_.push_back(
        communicator_.make_reduce_scatter(output, input, reduction, at));
    return *this;
}

Group& Group::broadcast(const Tensor& buffer, int root, SourceLine at) {
    communicator_.grouped_.push_back(communicator_.make_broadcast(buffer, root, at));
    return *this;
}

Group& Group::reduce(const Tensor& buffer, int root, Reduction reduction, SourceLine at) {
    communicator_.grouped_.push_back(communicator_.make_reduce(buffer, root, reduction, at));
    return *this;
}

Work Group::start() {
    communicator_.group_open_ = false;
    Work work = communicator_.do_launch(communicator_.grouped_, communicator_.group_at_);
    communicator_.grouped_.clear();
    return work;
}

}  // namespace lockstep
