#include "src/inference/decision.hpp"

#include <array>
#include <utility>

namespace lockstep {

Decision::Decision(Device& device, Communicator& group, SourceLine at)
    : device_(device), group_(group), decides_(group.rank() == 0) {
    if (device.has_numbers()) return;
    const MemoryScope scope(device, MemoryCategory::workspace);
    yes_ = {group.split(0, group.rank(), "yes", at), device.zeros({1}, DType::i32, at)};
    no_ = {group.split(0, group.rank(), "no", at), device.zeros({1}, DType::i32, at)};
}

bool Decision::decide(bool own, SourceLine at) {
    if (device_.has_numbers()) {
        const MemoryScope scope(device_, MemoryCategory::workspace);
        const Tensor said = device_.zeros({1}, DType::i32, at);
        if (own) device_.fill(said, 1, at);
        group_.broadcast(said, 0, at).wait(at);
        return device_.download(said, at).at(0) == 1;
    }
    if (decides_) {
        tell(own ? yes_ : no_, at);
        open_ = own ? &no_ : &yes_;
        return own;
    }
    expect(yes_, at);
    expect(no_, at);
    std::array arrivals{std::move(*yes_.arrival), std::move(*no_.arrival)};
    const bool is_yes = wait_any(arrivals, at) == 0;
    Way &said = is_yes ? yes_ : no_, &other = is_yes ? no_ : yes_;
    said.arrival.reset();
    other.arrival = std::move(arrivals[is_yes ? 1 : 0]);
    open_ = &other;
    return is_yes;
}

void Decision::end(SourceLine at) {
    Way* open = std::exchange(open_, nullptr);
    if (open == nullptr) return;
    if (decides_) return tell(*open, at);
    open->arrival->wait(at);
    open->arrival.reset();
}

void Decision::tell(Way& way, SourceLine at) {
    auto messages = way.ranks->group(at);
    for (int rank = 1; rank < way.ranks->size(); ++rank)
        messages.send(way.message, rank, at);
    messages.start(at).wait(at);
}

void Decision::expect(Way& way, SourceLine at) {
    if (!way.arrival) way.arrival = way.ranks->recv(way.message, 0, at);
}

}  // namespace lockstep
