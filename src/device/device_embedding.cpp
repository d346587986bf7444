#include <fmt/format.h>

#include "src/device/check.hpp"
#include "src/device/device.hpp"
#include "src/device/vocabulary.hpp"

namespace lockstep {

namespace {

Shape with_width(const Shape& ids, std::int64_t width) {
    std::int64_t extents[Shape::kMaxDimensions + 1] = {};
    for (int d = 0; d < ids.dimensions(); ++d)
        extents[d] = ids[d];
    extents[ids.dimensions()] = width;
    return {extents, ids.dimensions() + 1};
}

void check_table(const Check& check, const char* name, const Tensor& table) {
    check.real(name, table);
    check.that(table.shape().dimensions() == 2, [&] {
        return fmt::format("{} has shape {}; (vocabulary, width) is expected", name,
                           table.shape().text());
    });
}

}  // namespace

Tensor Device::embedding(const Tensor& table, const Tensor& ids, VocabularyShard shard,
                         SourceLine at) {
    const Check check(*this, "embedding", at);
    check_table(check, "table", table);
    check.dtype("ids", ids, DType::i32);
    check.that(ids.shape().dimensions() < Shape::kMaxDimensions, [&] {
        return fmt::format("ids has {} dimensions; at most {} are expected",
                           ids.shape().dimensions(), Shape::kMaxDimensions - 1);
    });
    const VocabularyShard part = checked_shard(check, shard, table.shape()[0]);
    Tensor rows = empty(with_width(ids.shape(), table.shape()[1]), table.dtype(), at);
    run_indexed(
        {"embedding", at, 0, ids.bytes() + 2 * rows.bytes(), Derivation::linear_in(0)},
        part.whole, {&table, &ids}, {&rows},
        [&] { do_embedding(rows, table, ids, part); },
        [&] {
            if (part.whole == 0) refuse_any_index(ids);
            if (rows.elements() > 0) do_fill(rows, 0);
        });
    return rows;
}

void Device::embedding_backward(const Tensor& d_table, const Tensor& ids,
                                const Tensor& dy, VocabularyShard shard, SourceLine at) {
    const Check check(*this, "embedding_backward", at);
    check_table(check, "d_table", d_table);
    check.dtype("ids", ids, DType::i32);
    check.dtype("dy", dy, d_table.dtype());
    check.matrix("dy", dy, ids.elements(), d_table.shape()[1]);
    check.apart("d_table", d_table, "dy", dy);
    check.apart("d_table", d_table, "ids", ids);
    const VocabularyShard part = checked_shard(check, shard, d_table.shape()[0]);
    run_indexed(
        {"embedding_backward", at, dy.elements(), ids.bytes() + 3 * dy.bytes(),
         Derivation::adding(Derivation::linear_in(2))},
        part.whole, {&d_table, &ids, &dy}, {&d_table},
        [&] { do_embedding_backward(d_table, ids, dy, part); },
        [&] {
            if (part.whole == 0) refuse_any_index(ids);
        });
}

}  // namespace lockstep
