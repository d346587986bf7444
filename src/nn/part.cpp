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
    const std::int64_t columns = columns_in(part.shape);
    const std::int64_t pitch = columns_in(part.whole);
    std::int64_t held = 0;
    for (const Part::Rows& block : part.rows)
        held += block.count;
    if (held < rows_in(part.shape)) value.device()->fill(value, 0);
    for (const Part::Rows& block : part.rows)
        draw(value.slice(block.at * columns, block.count * columns)
                 .reshaped({block.count, columns}),
             RandomPart{block.from * pitch + part.column, pitch});
}

/// copy(place in the shard, place in the whole, bytes) for every row.
template <typename Copy>
void each_row(const Part& part, DType dtype, Copy&& copy) {
    const std::int64_t element = bytes_of(dtype);
    const std::int64_t bytes = columns_in(part.shape) * element;
    const std::int64_t pitch = columns_in(part.whole) * element;
    for (const Part::Rows& block : part.rows)
        for (std::int64_t row = 0; row < block.count; ++row)
            copy((block.at + row) * bytes,
                 (block.from + row) * pitch + part.column * element,
                 static_cast<std::size_t>(bytes));
}

/// Returns how many of the `count` rows from `from` on there are.
std::int64_t rows_there(std::int64_t all, std::int64_t from, std::int64_t count) {
    return std::clamp<std::int64_t>(all - from, 0, count);
}

}  // namespace

Part row_part(const Shape& whole, std::int64_t from, std::int64_t count) {
    return {whole,
            whole.with_first(count),
            {{0, from, rows_there(rows_in(whole), from, count)}},
            0};
}

Part column_part(const Shape& whole, std::int64_t from, std::int64_t count) {
    return {whole, whole.with_last(count), {{0, 0, rows_in(whole)}}, from};
}

Part stacked_part(const Shape& whole, const std::vector<std::int64_t>& layers, int parts,
                  int index) {
    Part part{whole, whole, {}, 0};
    std::int64_t at = 0, from = 0;
    for (const std::int64_t layer : layers) {
        const std::int64_t each = (layer + parts - 1) / parts;
        part.rows.push_back(
            {at, from + index * each, rows_there(layer, index * each, each)});
        at += each;
        from += layer;
    }
    part.shape = whole.with_first(at);
    return part;
}

bool holds_all(const Part& part) {
    return part.shape == part.whole && part.rows.size() == 1 &&
           part.rows[0].count == rows_in(part.whole);
}

void start_uniform(Parameter& parameter, std::uint64_t seed, double bound) {
    parameter.set_initial([=](const Parameter& it) { draw_uniform(it, seed, bound); });
}

void start_normal(Parameter& parameter, std::uint64_t seed, double deviation) {
    parameter.set_initial([=](const Parameter& it) { draw_normal(it, seed, deviation); });
}

void start_constant(Parameter& parameter, double value) {
    parameter.set_initial(
        [=](const Parameter& it) { it.value.device()->fill(it.value, value); });
}

void draw_uniform(const Parameter& parameter, std::uint64_t seed, double bound) {
    const RandomStream stream(seed, parameter.name());
    draw_blocks(parameter, [&](const Tensor& rows, const RandomPart& part) {
        rows.device()->random_uniform(rows, stream, -bound, bound, part);
    });
}

void draw_normal(const Parameter& parameter, std::uint64_t seed, double deviation) {
    const RandomStream stream(seed, parameter.name());
    draw_blocks(parameter, [&](const Tensor& rows, const RandomPart& part) {
        rows.device()->random_normal(rows, stream, 0, deviation, part);
    });
}

HostTensor shard_of(const HostTensor& whole, const Part& part) {
    HostTensor shard(part.shape, whole.dtype());
    each_row(part, whole.dtype(),
             [&](std::int64_t to, std::int64_t from, std::size_t bytes) {
                 std::memcpy(shard.data() + to, whole.data() + from, bytes);
             });
    return shard;
}

void put_shard(HostTensor& whole, const HostTensor& shard, const Part& part) {
    each_row(part, whole.dtype(),
             [&](std::int64_t from, std::int64_t to, std::size_t bytes) {
                 std::memcpy(whole.data() + to, shard.data() + from, bytes);
             });
}

}  // namespace lockstep
