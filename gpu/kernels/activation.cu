#include <cmath>

#include "gpu/kernels/activation.hpp"
#include "gpu/kernels/each.cuh"
#include "gpu/kernels/tiles.cuh"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

struct Function {
    static constexpr int kWritten = 1;
    static constexpr bool kReadsFirst = false;
};

struct Tanh : Function {
    template <typename T>
    __device__ void operator()(T& y, const T& x) const {
        y = std::tanh(x);
    }
};

struct TanhBackward : Function {
    template <typename T>
    __device__ void operator()(T& dx, const T& y, const T& dy) const {
        dx = formulas::tanh_backward(y, dy);
    }
};

struct Sigmoid : Function {
    template <typename T>
    __device__ void operator()(T& y, const T& x) const {
        y = formulas::sigmoid(x);
    }
};

struct SigmoidBackward : Function {
    template <typename T>
    __device__ void operator()(T& dx, const T& y, const T& dy) const {
        dx = formulas::sigmoid_backward(y, dy);
    }
};

struct Gelu : Function {
    template <typename T>
    __device__ void operator()(T& y, const T& x) const {
        y = formulas::gelu(x);
    }
};

struct GeluBackward : Function {
    template <typename T>
    __device__ void operator()(T& dx, const T& x, const T& dy) const {
        dx = formulas::gelu_backward(x, dy);
    }
};

struct GeluByTanh : Function {
    template <typename T>
    __device__ void operator()(T& y, const T& x) const {
        y = formulas::gelu_by_tanh(x);
    }
};

struct GeluByTanhBackward : Function {
    template <typename T>
    __device__ void operator()(T& dx, const T& x, const T& dy) const {
        dx = formulas::gelu_by_tanh_backward(x, dy);
    }
};

template <typename S>
struct GatedRows {
    S* to;  ///< y in the forward, dx in the backward
    const S* x;
    const S* dy;  ///< null in the forward
    std::int64_t width;
};

/// Replaces the gate by y.
template <typename T, int kWidth>
__device__ void apply_gate(Pack<T, kWidth>& gate, const Pack<T, kWidth>& rest) {
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane)
        gate.value[lane] = formulas::swiglu(gate.value[lane], rest.value[lane]);
}

/// Replaces x by dx.
template <typename T, int kWidth>
__device__ void differentiate(Pack<T, kWidth>& gate, Pack<T, kWidth>& rest,
                              const Pack<T, kWidth>& dy) {
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
        const T g = gate.value[lane];
        gate.value[lane] =
            formulas::swiglu_backward_gate(g, rest.value[lane], dy.value[lane]);
        rest.value[lane] = formulas::swiglu(g, dy.value[lane]);
    }
}

template <typename S, int kWidth, bool kBackward>
__global__ void __launch_bounds__(kTileThreads)
    swiglu_rows(GatedRows<S> gated, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    const std::int64_t column = at.column * kWidth;
    Pack<Computed<S>, kWidth> gate[kTileRows], rest[kTileRows], dy[kTileRows];
#pragma unroll
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        const S* from = gated.x + 2 * row * gated.width + column;
        gate[u] = load<kWidth>(from, true);
        rest[u] = load<kWidth>(from + gated.width, true);
        if constexpr (kBackward)
            dy[u] = load<kWidth>(gated.dy + row * gated.width + column, true);
    }
#pragma unroll
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        if constexpr (kBackward) {
            differentiate(gate[u], rest[u], dy[u]);
            S* to = gated.to + 2 * row * gated.width + column;
            store(to, gate[u], true);
            store(to + gated.width, rest[u], true);
        } else {
            apply_gate(gate[u], rest[u]);
            store(gated.to + row * gated.width + column, gate[u], true);
        }
    }
}

template <bool kBackward>
void launch_swiglu_rows(cudaStream_t stream, Numbers to, Numbers x, Numbers dy,
                        std::int64_t rows, std::int64_t width) {
    with_type(to, [&]<typename S>(S) {
        const GatedRows<S> gated{to.as<S>(), x.as<S>(), dy.as<S>(), width};
        const bool full = width % kFullWidth<S> == 0 && aligned(to, x, dy);
        with_width<S>(full, [&]<int kWidth>(Constant<kWidth>) {
            const Tiles tiles(rows, width / kWidth);
            launch(stream, swiglu_rows<S, kWidth, kBackward>, tiles.blocks(),
                   kTileThreads, gated, tiles);
        });
    });
}

}  // namespace

void launch_tanh(cudaStream_t stream, Numbers y, Numbers x, std::int64_t elements) {
    each(stream, elements, Tanh{}, y, x);
}

void launch_tanh_backward(cudaStream_t stream, Numbers dx, Numbers y, Numbers dy,
                          std::int64_t elements) {
    each(stream, elements, TanhBackward{}, dx, y, dy);
}

void launch_sigmoid(cudaStream_t stream, Numbers y, Numbers x, std::int64_t elements) {
    each(stream, elements, Sigmoid{}, y, x);
}

void launch_sigmoid_backward(cudaStream_t stream, Numbers dx, Numbers y, Numbers dy,
                             std::int64_t elements) {
    each(stream, elements, SigmoidBackward{}, dx, y, dy);
}

void launch_gelu(cudaStream_t stream, Numbers y, Numbers x, std::int64_t elements,
                 GeluForm form) {
    if (form == GeluForm::tanh) return each(stream, elements, GeluByTanh{}, y, x);
    each(stream, elements, Gelu{}, y, x);
}

void launch_gelu_backward(cudaStream_t stream, Numbers dx, Numbers x, Numbers dy,
                          std::int64_t elements, GeluForm form) {
    if (form == GeluForm::tanh)
        return each(stream, elements, GeluByTanhBackward{}, dx, x, dy);
    each(stream, elements, GeluBackward{}, dx, x, dy);
}

void launch_swiglu(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                   std::int64_t width) {
    launch_swiglu_rows<false>(stream, y, x, {}, rows, width);
}

void launch_swiglu_backward(cudaStream_t stream, Numbers dx, Numbers x, Numbers dy,
                            std::int64_t rows, std::int64_t width) {
    launch_swiglu_rows<true>(stream, dx, x, dy, rows, width);
}

}  // namespace lockstep::gpu
