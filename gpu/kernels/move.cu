#include <type_traits>

#include "gpu/kernels/each.cuh"
#include "gpu/kernels/move.hpp"
#include "gpu/kernels/tiles.cuh"

namespace lockstep::gpu {

namespace {

/// The type in which T is added and multiplied: integers wrap around.
template <typename T>
using Wrapping = std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, T>;

/// The destination is both read and written.
struct Update {
    static constexpr int kWritten = 1;
    static constexpr bool kReadsFirst = true;
};

template <typename T>
struct Fill {
    static constexpr int kWritten = 1;
    static constexpr bool kReadsFirst = false;
    T value;
    __device__ void operator()(T& out) const { out = value; }
};

template <typename T>
struct Add : Update {
    T factor;
    explicit Add(T value) : factor(value) {}
    __device__ void operator()(T& out, const T& in) const { out = out + factor * in; }
};

template <typename T>
struct Scale : Update {
    T factor;
    explicit Scale(T value) : factor(value) {}
    __device__ void operator()(T& out) const { out = factor * out; }
};

struct ScaleWhole : Update {
    double factor;
    explicit ScaleWhole(double value) : factor(value) {}
    __device__ void operator()(std::int32_t& out) const {
        out = static_cast<std::int32_t>(out * factor);
    }
};

template <typename T>
struct ScaleByTensor : Update {
    const T* factor;
    explicit ScaleByTensor(const T* value) : factor(value) {}
    __device__ void operator()(T& out) const { out = *factor * out; }
};

struct Sum : Update {
    template <typename T>
    __device__ void operator()(T& out, const T& in) const {
        out = out + in;
    }
};

struct Product : Update {
    template <typename T>
    __device__ void operator()(T& out, const T& in) const {
        out = out * in;
    }
};

// A NaN on either side is kept.

struct Minimum : Update {
    template <typename T>
    __device__ void operator()(T& out, const T& in) const {
        out = out < in || out != out ? out : in;
    }
};

struct Maximum : Update {
    template <typename T>
    __device__ void operator()(T& out, const T& in) const {
        out = out > in || out != out ? out : in;
    }
};

/// A thread starts several loads at once; adjacent threads load adjacent elements.
constexpr int kCastUnroll = 4;

template <typename To, typename From>
__global__ void __launch_bounds__(kEachThreads)
    cast_kernel(std::int64_t elements, To* destination, const From* source) {
    const std::int64_t first =
        std::int64_t{blockIdx.x} * (kEachThreads * kCastUnroll) + threadIdx.x;
    From values[kCastUnroll];
#pragma unroll
    for (int u = 0; u < kCastUnroll; ++u) {
        const std::int64_t at = first + u * kEachThreads;
        if (at < elements) values[u] = source[at];
    }
#pragma unroll
    for (int u = 0; u < kCastUnroll; ++u) {
        const std::int64_t at = first + u * kEachThreads;
        if (at < elements) destination[at] = static_cast<To>(values[u]);
    }
}

template <typename T>
struct CopiedRows {
    T* destination;
    std::int64_t destination_pitch;  ///< in elements, as are all pitches here
    const T* source;
    std::int64_t source_pitch;
    CopiedIds ids;

    __device__ T read(std::int64_t row, std::int64_t column) const {
        if (ids.ids == nullptr) return source[row * source_pitch + column];
        const std::int64_t from = ids.ids[row] - ids.first;
        if (from < 0 || from >= ids.rows) return T{};
        return source[from * source_pitch + column];
    }
};

template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    copy_rows(CopiedRows<T> copied, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    T values[kTileRows];
#pragma unroll
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        values[u] = copied.read(row, at.column);
    }
#pragma unroll
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        copied.destination[row * copied.destination_pitch + at.column] = values[u];
    }
}

}  // namespace

template <typename S>
void launch_fill(cudaStream_t stream, S* destination, std::int64_t elements,
                 Computed<S> value) {
    each(stream, elements, Fill<Computed<S>>{value}, destination);
}

template <typename To, typename From>
void launch_cast(cudaStream_t stream, To* destination, const From* source,
                 std::int64_t elements) {
    const std::int64_t blocks = divided_up(elements, kEachThreads * kCastUnroll);
    launch(stream, cast_kernel<To, From>, static_cast<int>(blocks), kEachThreads,
           elements, destination, source);
}

template <typename S>
void launch_add(cudaStream_t stream, S* destination, const S* source,
                std::int64_t elements, Computed<S> factor) {
    each(stream, elements, Add<Computed<S>>(factor), destination, source);
}

template <typename S>
void launch_scale(cudaStream_t stream, S* destination, std::int64_t elements,
                  Computed<S> factor) {
    each(stream, elements, Scale<Computed<S>>(factor), destination);
}

void launch_scale_whole(cudaStream_t stream, std::int32_t* destination,
                        std::int64_t elements, double factor) {
    each(stream, elements, ScaleWhole(factor), destination);
}

void launch_scale_by_tensor(cudaStream_t stream, Numbers destination, Numbers factor,
                            std::int64_t elements) {
    with_type(destination, [&]<typename S>(S) {
        using T = Computed<S>;
        each(stream, elements, ScaleByTensor<T>(factor.as<T>()), destination.as<S>());
    });
}

template <typename T>
void launch_combine(cudaStream_t stream, T* destination, const T* source,
                    std::int64_t elements, Reduction reduction) {
    using W = Wrapping<T>;
    auto* wrapping = reinterpret_cast<W*>(destination);
    const auto* added = reinterpret_cast<const W*>(source);
    switch (reduction) {
        case Reduction::mean:
        case Reduction::sum:
            return each(stream, elements, Sum{}, wrapping, added);
        case Reduction::product:
            return each(stream, elements, Product{}, wrapping, added);
        case Reduction::minimum:
            return each(stream, elements, Minimum{}, destination, source);
        case Reduction::maximum:
            return each(stream, elements, Maximum{}, destination, source);
    }
}

void launch_copy_rows(cudaStream_t stream, void* destination,
                      std::int64_t destination_pitch, const RowsOf& source,
                      const CopiedIds& ids, std::int64_t rows, std::int64_t width,
                      std::int64_t element) {
    const auto copy = [&]<typename T>(T) {
        constexpr std::int64_t kSize = sizeof(T);
        const Tiles tiles(rows, width / kSize);
        const CopiedRows<T> copied{
            static_cast<T*>(destination), destination_pitch / kSize,
            static_cast<const T*>(source.data), source.pitch / kSize, ids};
        launch(stream, copy_rows<T>, tiles.blocks(), kTileThreads, copied, tiles);
    };
    const bool whole_packs = aligned(static_cast<const char*>(destination),
                                     static_cast<const char*>(source.data)) &&
                             destination_pitch % 16 == 0 && source.pitch % 16 == 0 &&
                             width % 16 == 0;
    if (whole_packs) return copy(Pack<std::uint32_t, 4>{});
    if (element == 8) return copy(std::uint64_t{});
    if (element == 4) return copy(std::uint32_t{});
    copy(std::uint16_t{});
}

template void launch_fill(cudaStream_t, float*, std::int64_t, float);
template void launch_fill(cudaStream_t, double*, std::int64_t, double);
template void launch_fill(cudaStream_t, Bf16*, std::int64_t, float);
template void launch_fill(cudaStream_t, std::int32_t*, std::int64_t, std::int32_t);
template void launch_cast(cudaStream_t, float*, const float*, std::int64_t);
template void launch_cast(cudaStream_t, float*, const double*, std::int64_t);
template void launch_cast(cudaStream_t, double*, const float*, std::int64_t);
template void launch_cast(cudaStream_t, double*, const double*, std::int64_t);
template void launch_cast(cudaStream_t, Bf16*, const float*, std::int64_t);
template void launch_cast(cudaStream_t, Bf16*, const double*, std::int64_t);
template void launch_cast(cudaStream_t, Bf16*, const Bf16*, std::int64_t);
template void launch_cast(cudaStream_t, float*, const Bf16*, std::int64_t);
template void launch_cast(cudaStream_t, double*, const Bf16*, std::int64_t);
template void launch_add(cudaStream_t, float*, const float*, std::int64_t, float);
template void launch_add(cudaStream_t, double*, const double*, std::int64_t, double);
template void launch_add(cudaStream_t, Bf16*, const Bf16*, std::int64_t, float);
template void launch_add(cudaStream_t, std::uint32_t*, const std::uint32_t*, std::int64_t,
                         std::uint32_t);
template void launch_scale(cudaStream_t, float*, std::int64_t, float);
template void launch_scale(cudaStream_t, double*, std::int64_t, double);
template void launch_scale(cudaStream_t, Bf16*, std::int64_t, float);
template void launch_combine(cudaStream_t, float*, const float*, std::int64_t, Reduction);
template void launch_combine(cudaStream_t, double*, const double*, std::int64_t,
                             Reduction);
template void launch_combine(cudaStream_t, Bf16*, const Bf16*, std::int64_t, Reduction);
template void launch_combine(cudaStream_t, std::int32_t*, const std::int32_t*,
                             std::int64_t, Reduction);

}  // namespace lockstep::gpu
