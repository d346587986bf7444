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

    __device__ S* first_head(const HeadRows& rows, std::int64_t row,
                             std::int64_t batch) const {
        return rows.tensor.as<S>() + rows.first + row * rows.pitch + batch * rows.batch;
    }
};

/// A thread rotates one pair of columns in all heads of a row: the heads share the angle.
template <typename S>
__global__ void __launch_bounds__(kTileThreads)
    rotate_rows(Rotation<S> rotation, Tiles tiles) {
    using T = Computed<S>;
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    const double frequency = formulas::rotary_frequency(at.column, rotation.shape.width,
                                                        rotation.options.base);
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t index = at.row + u * at.height;
        if (index >= tiles.rows) break;
        const std::int64_t row = index / rotation.shape.batches;
        const std::int64_t batch = index - row * rotation.shape.batches;
        const std::int64_t position =
            rotation.places ? rotation.places[index] : rotation.positions[row];
        const double angle = static_cast<double>(position) * frequency;
        const T cosine = static_cast<T>(std::cos(angle));
        const T sine =
            static_cast<T>(std::sin(rotation.options.inverse ? -angle : angle));
        const S* from = rotation.first_head(rotation.from, row, batch) + at.column;
        S* to = rotation.first_head(rotation.to, row, batch) + at.column;
        for (std::int64_t head = 0; head < rotation.shape.heads; ++head) {
            const T a = from[0], b = from[tiles.packs];
            to[0] = static_cast<S>(a * cosine - b * sine);
            to[tiles.packs] = static_cast<S>(b * cosine + a * sine);
            from += rotation.shape.width;
            to += rotation.shape.width;
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
