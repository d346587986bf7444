#include "gpu/launcher/round.hpp"

#include <fmt/format.h>

namespace lockstep::gpu {

namespace {

const char* verb(MessageKind kind) {
    return kind == MessageKind::broadcast ? "broadcast" : "all_gather";
}

}  // namespace

Round::Round(int size) : parts_(static_cast<size_t>(size)) {}

void Round::add(int rank, Message message) {
    std::optional<Message>& part = parts_.at(static_cast<size_t>(rank));
    if (part || message.sequence != sequence_)
        throw ProtocolError("a message to another exchange");
    part = std::move(message);
    ++present_;
}

std::optional<Failure> Round::mistake(const std::vector<bool>& left) const {
    int first = -1;
    for (size_t rank = 0; rank < parts_.size() && first < 0; ++rank)
        if (parts_[rank]) first = static_cast<int>(rank);
    if (first < 0) return std::nullopt;
    const MessageKind kind = parts_[static_cast<size_t>(first)]->kind;
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
        const int here = static_cast<int>(rank);
        if (parts_[rank] && parts_[rank]->kind != kind)
            return Failure{
                here, 1,
                fmt::format("lockstep: rank {} came to {} while rank {} came to {}: all "
                            "processes must come to the same",
                            here, verb(parts_[rank]->kind), first, verb(kind))};
        if (!parts_[rank] && left[rank])
            return Failure{
                here, 1,
                fmt::format(
                    "lockstep: rank {} has ended while rank {} waits for it in {}", here,
                    first, verb(kind))};
    }
    return std::nullopt;
}

Message Round::finish() {
    std::vector<std::string_view> list;
    const bool broadcast = parts_.front()->kind == MessageKind::broadcast;
    for (const std::optional<Message>& part : parts_) {
        list.push_back(*part->body);
        if (broadcast) break;
    }
    Message result(MessageKind::result, pack(list), sequence_++);
    for (std::optional<Message>& part : parts_)
        part.reset();
    present_ = 0;
    return result;
}

}  // namespace lockstep::gpu
