#include <cmath>

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/rotary.hpp"
#include "gpu/kernels/tiles.cuh"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

template <typename S>
struct Rotation {
    HeadRows to, from;
    AttentionShape shape;
    TokenRows positions;
    RotaryOptions options;
    const std::int32_t* places;

    __device__ S* first_head(const HeadRows& of, std::int64_t row,
                             std::int64_t batch) const {
        return of.tensor.as<S>() + of.first + row * of.pitch + batch * of.batch;
    }
};

/// A thread rotates one pair of columns, in all heads of its rows: they share the angle.
template <typename S>
__global__ void __launch_bounds__(kTileThreads) rotate_rows(Rotation<S> of, Tiles tiles) {
    using T = Computed<S>;
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    const double frequency =
        formulas::rotary_frequency(at.column, of.shape.width, of.options.base);
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t index = at.row + u * at.height;
        if (index >= tiles.rows) break;
        const std::int64_t row = index / of.shape.batches;
        const std::int64_t batch = index - row * of.shape.batches;
        const std::int64_t position = of.places ? of.places[index] : of.positions[row];
        const double angle = static_cast<double>(position) * frequency;
        const T cosine = static_cast<T>(std::cos(angle));
        const T sine = static_cast<T>(std::sin(of.options.inverse ? -angle : angle));
        const S* from = of.first_head(of.from, row, batch) + at.column;
        S* to = of.first_head(of.to, row, batch) + at.column;
        for (std::int64_t head = 0; head < of.shape.heads; ++head) {
            const T a = from[0], b = from[tiles.packs];
            to[0] = static_cast<S>(a * cosine - b * sine);
            to[tiles.packs] = static_cast<S>(b * cosine + a * sine);
            from += of.shape.width;
            to += of.shape.width;
        }
    }
}

}  // namespace

void launch_rotate(cudaStream_t stream, const HeadRows& to, const HeadRows& from,
                   const AttentionShape& shape, const TokenRows& positions,
                   const RotaryOptions& options, const std::int32_t* places) {
    with_type(to.tensor, [&]<typename S>(S) {
        const Tiles tiles(from.rows * shape.batches, shape.width / 2);
        launch(stream, rotate_rows<S>, tiles.blocks(), kTileThreads,
               Rotation<S>{to, from, shape, positions, options, places}, tiles);
    });
}

}  // namespace lockstep::gpu
