// Tensor cores, a block's own memory, and copies to it. On a GPU, kernels use PTX
// instructions for these. Each lane has parts of the matrices, as in the PTX ISA: rows
// lane / 4 and lane / 4 + 8 of a and of the sums, and column lane / 4 of b. In the other
// dimension a lane has pairs of neighbours; the first pair begins at lane % 4 * 2.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "emulated_kernel.h"

namespace emulated {

/// Returns the block's memory. The launch gave its size. At first all bits are set.
void* memory_of_block();
/// Ends the process if the block's memory does not contain these bytes.
void require_in_memory_of_block(const void* address, std::size_t bytes);

template <typename Memory>
Memory& block_memory() {
    return *static_cast<Memory*>(memory_of_block());
}

/// A copy happens at once, or as late as possible: when its thread waits for the copy.
void start_copy(void* to, const void* from, bool is_there);
void end_group_of_copies();
void wait_for_all_but_last_group();

/// All lanes of a warp call do_together() together. Each lane passes one pointer.
using WarpAction = void (*)(void* const (&of_lanes)[32]);
void do_together(WarpAction action, void* mine, Place place);

struct ProductOfLane {
    float* sums;
    const std::uint32_t* a;
    std::uint32_t b[2];
};

/// Returns number `which` of the two numbers in a register.
inline float bf16_of(std::uint32_t pair, int which) {
    return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000U);
}

inline void multiply_of_warp(void* const (&of_lanes)[32]) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto& mine = *static_cast<const ProductOfLane*>(of_lanes[lane]);
        for (int k = 0; k < 8; ++k) {
            const int part = k / 2, row = lane / 4 + part % 2 * 8;
            a[row][lane % 4 * 2 + part / 2 * 8 + k % 2] = bf16_of(mine.a[part], k % 2);
        }
        for (int k = 0; k < 4; ++k)
            b[lane % 4 * 2 + k / 2 * 8 + k % 2][lane / 4] = bf16_of(mine.b[k / 2], k % 2);
    }
    for (int lane = 0; lane < 32; ++lane) {
        float* const sums = static_cast<const ProductOfLane*>(of_lanes[lane])->sums;
        for (int part = 0; part < 4; ++part) {
            const int row = lane / 4 + part / 2 * 8, column = lane % 4 * 2 + part % 2;
            for (int k = 0; k < 16; ++k)
                sums[part] += a[row][k] * b[k][column];
        }
    }
}

inline void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4],
                         std::uint32_t upper, std::uint32_t lower,
                         const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
    ProductOfLane mine{sums, a, {upper, lower}};
    do_together(multiply_of_warp, &mine, {file, line});
}

struct MatricesOfLane {
    std::uint32_t* to;
    const void* row;
};

/// Returns number `which` of the 8 numbers in a lane's row.
inline std::uint16_t number_of(void* const (&of_lanes)[32], int lane, int which) {
    std::uint16_t bits = 0;
    const auto* const row = static_cast<const MatricesOfLane*>(of_lanes[lane])->row;
    std::memcpy(&bits, static_cast<const char*>(row) + 2 * which, sizeof bits);
    return bits;
}

template <bool kTransposed>
void load_of_warp(void* const (&of_lanes)[32]) {
    for (int lane = 0; lane < 32; ++lane)
        for (int matrix = 0; matrix < 4; ++matrix) {
            std::uint32_t pair = 0;
            for (int k = 0; k < 2; ++k) {
                const int along = lane % 4 * 2 + k;
                const std::uint32_t bits =
                    kTransposed ? number_of(of_lanes, 8 * matrix + along, lane / 4)
                                : number_of(of_lanes, 8 * matrix + lane / 4, along);
                pair |= bits << 16 * k;
            }
            static_cast<const MatricesOfLane*>(of_lanes[lane])->to[matrix] = pair;
        }
}

template <bool kTransposed>
void load_together(std::uint32_t (&to)[4], const void* row, Place place) {
    require_vector_at(row, 16);
    require_in_memory_of_block(row, 16);
    MatricesOfLane mine{to, row};
    do_together(load_of_warp<kTransposed>, &mine, place);
}

inline void load_matrices(std::uint32_t (&to)[4], const void* row,
                          const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
    load_together<false>(to, row, {file, line});
}

inline void load_transposed(std::uint32_t (&to)[4], const void* row,
                            const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
    load_together<true>(to, row, {file, line});
}

}  // namespace emulated
