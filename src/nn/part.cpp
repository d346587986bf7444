#include "src/nn/part.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {

namespace {

/// A vector as a matrix of one column.
std::int64_t rows_in(const Shape& shape) {
    return shape.dimensions() == 1 ? shape[0] : shape.rows();
}

std::int64_t columns_in(const Shape& shape) {
    return shape.dimensions() == 1 ? 1 : shape.columns();
}

/// draw(tensor, numbers) for every block of rows that the parameter holds.
template <typename Draw>
void draw_blocks(const Parameter& parameter, Draw&& draw) {
    const Part& part = parameter.part();
    const Tensor& value = parameter.value;
    const std::int64_t columns = columns_in(value.shape());
    const std::int64_t pitch = columns_in(part.whole);
    std::int64_t filled = 0;
    for (const Part::Rows& block : part.rows) {
        const Tensor rows = value.slice(block.at * columns, block.count * columns);
        draw(rows.reshaped({block.count, columns}),
             RandomPart{block.from * pitch + part.column, pitch});
        filled += block.count;
    }
    const std::int64_t padding = rows_in(value.shape()) - filled;
    if (padding > 0)
        value.device()->fill(value.slice(filled * columns, padding * columns), 0);
}

/// copy(place in the shard, place in the whole, bytes) for every row.
template <typename Copy>
void each_row(const Part& part, const Shape& shape, DType dtype, Copy&& copy) {
    const std::int64_t bytes = columns_in(shape) * bytes_of(dtype);
    const std::int64_t pitch = columns_in(part.whole) * bytes_of(dtype);
    for (const Part::Rows& block : part.rows)
        for (std::int64_t row = 0; row < block.count; ++row)
            copy((block.at + row) * bytes,
                 (block.from + row) * pitch + part.column * bytes_of(dtype),
                 static_cast<std::size_t>(bytes));
}

}  // namespace

Part rows_of(const Shape& whole, std::int64_t from, std::int64_t count) {
    const std::int64_t held = std::clamp<std::int64_t>(rows_in(whole) - from, 0, count);
    return {whole, {{0, from, held}}, 0};
}

Part columns_of(const Shape& whole, std::int64_t from) {
    return {whole, {{0, 0, rows_in(whole)}}, from};
}

void draw_uniform(const Parameter& parameter, std::uint64_t seed, double bound) {
    const RandomStream stream(seed, parameter.name());
    draw_blocks(parameter, [&](const Tensor& rows, const RandomPart& part) {
        rows.device()->random_uniform(rows, stream, -bound, bound, part);
    });
}

void draw_normal(const Parameter& parameter, std::uint64_t seed) {
    const RandomStream stream(seed, parameter.name());
    draw_blocks(parameter, [&](const Tensor& rows, const RandomPart& part) {
        rows.device()->random_normal(rows, stream, 0, 1, part);
    });
}

HostTensor shard_of(const HostTensor& whole, const Part& part, const Shape& shape) {
    HostTensor shard(shape, whole.dtype());
    each_row(part, shape, whole.dtype(),
             [&](std::int64_t to, std::int64_t from, std::size_t bytes) {
                 std::memcpy(shard.data() + to, whole.data() + from, bytes);
             });
    return shard;
}

void put_shard(HostTensor& whole, const HostTensor& shard, const Part& part) {
    each_row(part, shard.shape(), whole.dtype(),
             [&](std::int64_t from, std::int64_t to, std::size_t bytes) {
                 std::memcpy(whole.data() + to, shard.data() + from, bytes);
             });
}

}  // namespace lockstep
