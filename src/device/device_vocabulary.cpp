#include <limits>

#include <fmt/format.h>

#include "src/device/device.hpp"
#include "src/device/flops.hpp"
#include "src/device/vocabulary.hpp"

namespace lockstep {

VocabularyShard checked_shard(const Check& check, const VocabularyShard& shard,
                              std::int64_t extent) {
    check.that(
        shard.first >= 0 && shard.whole >= 0 && (shard.whole > 0 || shard.first == 0),
        [&] {
            return fmt::format(
                "shard.first is {} and shard.whole {}; neither may be negative, and a "
                "shard that does not begin at 0 says how large the whole is",
                shard.first, shard.whole);
        });
    return {shard.first, shard.whole > 0 ? shard.whole : extent};
}

namespace {

/// Logits, and of each of their rows what shards have told each other.
VocabularyShard check_parts(const Check& check, const Tensor& logits,
                            const Tensor& targets, const Tensor& maximum,
                            const VocabularyShard& shard) {
    check.real("logits", logits);
    check.count("targets", targets, logits.shape().rows(), DType::i32);
    check.count("maximum", maximum, logits.shape().rows(), logits.dtype());
    return checked_shard(check, shard, logits.shape().columns());
}

}  // namespace

Tensor Device::row_maximum(const Tensor& logits, VocabularyShard shard, SourceLine at) {
    const Check check(*this, "row_maximum", at);
    check.real("logits", logits);
    const VocabularyShard part = checked_shard(check, shard, logits.shape().columns());
    Tensor maximum = empty({logits.shape().rows()}, logits.dtype(), at);
    run(
        {"row_maximum", at, logits.elements()}, {&logits}, {&maximum},
        [&] { do_row_maximum(maximum, logits, part); },
        [&] {
            if (maximum.elements() > 0)
                do_fill(maximum, -std::numeric_limits<double>::infinity());
        });
    return maximum;
}

Tensor Device::cross_entropy_parts(const Tensor& logits, const Tensor& targets,
                                   const Tensor& maximum, VocabularyShard shard,
                                   SourceLine at) {
    const Check check(*this, "cross_entropy_parts", at);
    const VocabularyShard part = check_parts(check, logits, targets, maximum, shard);
    Tensor parts = empty({2, logits.shape().rows()}, logits.dtype(), at);
    run_indexed(
        {"cross_entropy_parts", at, flops::kCrossEntropyParts * logits.elements()},
        part.whole, {&logits, &targets, &maximum}, {&parts},
        [&] { do_cross_entropy_parts(parts, logits, targets, maximum, part); },
        [&] {
            if (part.whole == 0) refuse_any_index(targets);
            if (parts.elements() > 0) do_fill(parts, 0);
        });
    return parts;
}

Tensor Device::cross_entropy_of_parts(const Tensor& maximum, const Tensor& parts,
                                      SourceLine at) {
    const Check check(*this, "cross_entropy_of_parts", at);
    check.real("maximum", maximum);
    check.dtype("parts", parts, maximum.dtype());
    check.matrix("parts", parts, 2, maximum.elements());
    Tensor losses = empty({maximum.elements()}, maximum.dtype(), at);
    run({"cross_entropy_of_parts", at, (flops::kTranscendental + 2) * maximum.elements()},
        {&maximum, &parts}, {&losses},
        [&] { do_cross_entropy_of_parts(losses, maximum, parts); });
    return losses;
}

Tensor Device::cross_entropy_backward_of_parts(const Tensor& logits,
                                               const Tensor& targets,
                                               const Tensor& maximum, const Tensor& parts,
                                               double factor, VocabularyShard shard,
                                               SourceLine at) {
    const Check check(*this, "cross_entropy_backward_of_parts", at);
    const VocabularyShard part = check_parts(check, logits, targets, maximum, shard);
    check.dtype("parts", parts, logits.dtype());
    check.matrix("parts", parts, 2, logits.shape().rows());
    Tensor d_logits = empty(logits.shape(), logits.dtype(), at);
    run_indexed(
        {"cross_entropy_backward_of_parts", at,
         flops::kCrossEntropyBackwardOfParts * logits.elements(), Charge::kOperands,
         Derivation::loss_gradient(factor)},
        part.whole, {&logits, &targets, &maximum, &parts}, {&d_logits},
        [&] {
            do_cross_entropy_backward_of_parts(d_logits, logits, targets, maximum, parts,
                                               factor, part);
        },
        [&] {
            if (part.whole == 0) refuse_any_index(targets);
        });
    return d_logits;
}

}  // namespace lockstep
