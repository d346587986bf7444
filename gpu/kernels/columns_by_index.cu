#include "gpu/kernels/columns_by_index.hpp"
#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"

namespace lockstep::gpu {

namespace {

constexpr int kIndexThreads = 256;

__device__ std::int64_t thread_number() {
    return std::int64_t{blockIdx.x} * kIndexThreads + threadIdx.x;
}

template <typename S>
__global__ void __launch_bounds__(kIndexThreads)
    take_columns(S* list, const S* matrix, const std::int32_t* indices,
                 std::int64_t elements, std::int64_t many, std::int64_t columns) {
    const std::int64_t place = thread_number();
    if (place >= elements) return;
    list[place] = matrix[place / many * columns + indices[place]];
}

/// A thread adds to one element of the matrix: it looks for the element's column in the
/// row's indices, and rounds once.
template <typename S>
__global__ void __launch_bounds__(kIndexThreads)
    add_columns(S* matrix, const S* list, const std::int32_t* indices,
                std::int64_t elements, std::int64_t many, std::int64_t columns) {
    using T = Computed<S>;
    const std::int64_t place = thread_number();
    if (place >= elements) return;
    const std::int64_t row = place / columns, column = place % columns;
    T sum = 0;
    bool any = false;
    for (std::int64_t at = row * many; at < (row + 1) * many; ++at) {
        if (indices[at] != column) continue;
        if (!any) sum = matrix[place];
        sum += T(list[at]);
        any = true;
    }
    if (any) matrix[place] = static_cast<S>(sum);
}

template <typename S, typename Kernel>
void launch_by_index(cudaStream_t stream, Kernel kernel, S* to, const S* from,
                     const std::int32_t* indices, std::int64_t elements,
                     std::int64_t many, std::int64_t columns) {
    launch(stream, kernel, static_cast<int>(divided_up(elements, kIndexThreads)),
           kIndexThreads, to, from, indices, elements, many, columns);
}

}  // namespace

void launch_take_columns(cudaStream_t stream, Numbers list, Numbers matrix,
                         const std::int32_t* indices, std::int64_t elements,
                         std::int64_t many, std::int64_t columns) {
    with_type(list, [&]<typename S>(S) {
        launch_by_index<S>(stream, take_columns<S>, list.as<S>(), matrix.as<S>(), indices,
                           elements, many, columns);
    });
}

void launch_add_columns(cudaStream_t stream, Numbers matrix, Numbers list,
                        const std::int32_t* indices, std::int64_t elements,
                        std::int64_t many, std::int64_t columns) {
    with_type(matrix, [&]<typename S>(S) {
        launch_by_index<S>(stream, add_columns<S>, matrix.as<S>(), list.as<S>(), indices,
                           elements, many, columns);
    });
}

}  // namespace lockstep::gpu
