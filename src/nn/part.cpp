#include "src/nn/part.hpp"

namespace lockstep {

namespace {

/// Calls draw(tensor, numbers) for every block of rows that the parameter holds.
template <typename Draw>
void draw_blocks(const Parameter& parameter, Draw&& draw) {
    const Part& part = parameter.part();
    const Tensor& value = parameter.value;
    const std::int64_t columns = part.width(), pitch = part.pitch();
    std::int64_t held = 0;
    for (const Part::Rows& block : part.rows)
        held += block.count;
    if (held < matrix_rows(part.shape)) value.device()->fill(value, 0);
    for (const Part::Rows& block : part.rows)
        draw(value.slice(block.at * columns, block.count * columns)
                 .reshaped({block.count, columns}),
             RandomPart{block.from * pitch + part.column, pitch});
}

}  // namespace

void start_uniform(Parameter& parameter, std::uint64_t seed, double bound) {
    parameter.set_initial(
        [=](const Parameter& target) { draw_uniform(target, seed, bound); });
}

void start_normal(Parameter& parameter, std::uint64_t seed, double deviation) {
    parameter.set_initial(
        [=](const Parameter& target) { draw_normal(target, seed, deviation); });
}

void start_constant(Parameter& parameter, double value) {
    parameter.set_initial([=](const Parameter& target) {
        draw_blocks(target, [&](const Tensor& rows, const RandomPart&) {
            rows.device()->fill(rows, value);
        });
    });
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

}  // namespace lockstep
