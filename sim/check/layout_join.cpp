#include "sim/check/layout_join.hpp"

namespace lockstep::sim {

using Kind = Layout::Kind;

LayoutJoin::LayoutJoin(const DeviceOperation& operation)
    : operation_(operation),
      identity_(
          mixed(static_cast<std::uint64_t>(operation.flops),
                static_cast<std::uint64_t>(operation.derivation.factor * 4294967296.0))),
      unknown_(operation.derivation.kind == Derivation::Kind::part) {
    for (const char* letter = operation.name; *letter != 0; ++letter)
        identity_ = mixed(identity_, static_cast<unsigned char>(*letter));
    operands_.reserve(operation.reads.size());
}

void LayoutJoin::add(const Tensor& operand, LayoutRanges ranges) {
    operands_.push_back(std::move(ranges));
    const LayoutRanges& known = operands_.back();
    unknown_ = unknown_ || !cover(known, operand.bytes());
    const bool added_to = operation_.derivation.adds && &operand == operation_.writes[0];
    if (added_to && is_backward_sum(operation_))
        sum_ = all_of_one(known, operand, [](const Layout& layout) {
            return (is_reduced(layout) && is_one(layout.multiplier)) ||
                   layout.kind == Kind::mixed;
        });
    for (const auto& range : known) {
        identity_ = mixed(identity_, identity_at(range));
        identity_ = mixed(identity_, static_cast<std::uint64_t>(range.begin));
        add(range.fact, added_to);
    }
}

void LayoutJoin::add(const Layout& layout, bool added_to) {
    switch (layout.kind) {
        case Kind::constant:
            // Shards may be filled with one number, and then this is a term of a sum.
            reduced_ = reduced_ && (added_to || !is_product());
            return;
        case Kind::sharded:
        case Kind::varying:
            if (varying_.kind == Kind::varying) return;
            varying_.kind = Kind::varying;
            varying_.origin = layout.origin;
            return;
        case Kind::replicated:
            return add_replica(layout);
        case Kind::drifted:
            unknown_ = true;
            if (added_to && drifted_ == nullptr) drifted_ = &layout;
            return;
        case Kind::mixed:
            unknown_ = unknown_ || !added_to;
            return;
        case Kind::unknown:
        case Kind::twice:
            unknown_ = true;
            return;
    }
}

/// Linear in two operands.
bool LayoutJoin::is_product() const {
    const unsigned linear = operation_.derivation.linear;
    return (linear & (linear - 1)) != 0;
}

void LayoutJoin::add_replica(const Layout& layout) {
    if (replica_ == nullptr) replica_ = &layout;
    unknown_ = unknown_ || !same_ranks(*replica_->team(), *layout.team());
    reduced_ = reduced_ && layout.reduced;
}

Layout LayoutJoin::result() const {
    if (drifted_ != nullptr) return *drifted_;
    const bool varies = varying_.kind == Kind::varying;
    if (sum_ != nullptr && sum_->kind == Kind::mixed) return *sum_;
    if (sum_ != nullptr && (unknown_ || varies)) {
        Layout result = *sum_;
        result.kind = Kind::mixed;
        result.changed = operation_.at;
        return result;
    }
    if (varies) return varying_;
    if (unknown_) return {};
    Layout result;
    result.kind = replica_ == nullptr ? Kind::constant : Kind::replicated;
    if (replica_ != nullptr) {
        result.reduced = reduced_;
        result.origin = replica_->origin;
    }
    result.identity = identity_;
    return result;
}

}  // namespace lockstep::sim
