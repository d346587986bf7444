#pragma once

#include <utility>

#include "sim/matmul.hpp"

// The arithmetic of a product, compiled once for each instruction set, with that set's
// flags. This file shares no code with other sources, not even of the standard library:
// the linker would keep one copy for all sets, and it might not run on every machine.
//
// An element of the product is always summed in the same order, for any instruction set,
// shape and place of the element: in blocks of kBlock products, each block by fused
// multiply-adds from 0, one after the other.

namespace lockstep::sim {

namespace {

using Index = std::int64_t;

/// A matrix of any layout: element (i, j) is at data[i * row + j * column].
template <typename T>
struct Strided {
    T* data;
    Index row, column;

    T* at(Index i, Index j) const { return data + i * row + j * column; }
};

/// Products of T with vectors of `Bytes`. A tile of kRows by up to kVectors vectors of
/// columns is summed in registers. Fused::add(a, b, sum) is a b + sum, rounded once. It
/// names the instruction; otherwise compilers would be free to fuse or not.
template <typename T, int Bytes, int kRows, int kVectors, typename Fused>
class Kernel {
  public:
    /// C (m, n) (+)= A (m, k) B (k, n), with kMatmulPacked<T> elements at `packed`.
    static void multiply(const Product<T>& product, T* packed) {
        const bool a_turned = product.options.transpose_a,
                   b_turned = product.options.transpose_b;
        const Strided<const T> a{product.a, a_turned ? 1 : product.a_row,
                                 a_turned ? product.a_row : 1};
        const Strided<const T> b{product.b, b_turned ? 1 : product.b_row,
                                 b_turned ? product.b_row : 1};
        const Strided<T> c{product.c, product.c_row, 1};
        const Index thin = thin_columns(product);
        if (thin > 0) multiply_thin<kMostThin>(c, a, b, product, thin);
        const Index rest = product.n - thin;
        // Few rows, and B is transposed: computes C transposed, to pack A and not B.
        if (b_turned && product.m <= kWidth && rest > product.m)
            multiply({c.at(0, thin), 1, c.row}, {b.at(0, thin), b.column, 1},
                     {a.data, a.column, a.row}, rest, product.k, product.m,
                     product.options.accumulate, packed);
        else if (rest > 0)
            multiply({c.at(0, thin), c.row, 1}, a, {b.at(0, thin), b.row, b.column},
                     product.m, product.k, rest, product.options.accumulate, packed);
    }

  private:
    static constexpr Index kWidth = Bytes / sizeof(T);
    static constexpr Index kColumns = kMatmulColumns;  // columns of B, packed together
    static constexpr Index kBlock = kMatmulBlock<T>;
    /// B is read directly, without packing, if it is this small or read this few times.
    static constexpr Index kSmallBytes = 128 << 10;
    static constexpr Index kFewRows = Index{4} * kRows;
    /// Up to this many rows, packing B does not pay. kThinTurned: if B is transposed.
    static constexpr int kThin = 2, kThinTurned = Bytes / 16;
    static constexpr int kMostThin = kThin > kThinTurned ? kThin : kThinTurned;
    /// The number of vectors of a row of B that are read one after the other.
    static constexpr int kLongVectors = 16;

    // NOLINTBEGIN(modernize-use-using): an alias would lose the alignment.
    typedef T Vector __attribute__((vector_size(Bytes)));
    typedef T Unaligned __attribute__((vector_size(Bytes), aligned(alignof(T))));
    // NOLINTEND(modernize-use-using)

    static constexpr Index least(Index a, Index b) { return a < b ? a : b; }

    // NOLINTNEXTLINE(readability-function-size): slower with a struct of parameters.
    static void multiply(Strided<T> c, Strided<const T> a, Strided<const T> b, Index m,
                         Index k, Index n, bool accumulate, T* packed) {
        if (k == 0 && !accumulate)
            for (Index i = 0; i < m; ++i)
                for (Index j = 0; j < n; ++j)
                    *c.at(i, j) = 0;
        const bool direct =
            b.column == 1 && (m <= kFewRows || k * n * Index{sizeof(T)} <= kSmallBytes);
        for (Index j = 0; j < n; j += kColumns)
            for (Index p = 0; p < k; p += kBlock)
                multiply_block(
                    {c.at(0, j), c.row, c.column}, {a.at(0, p), a.row, a.column},
                    {b.at(p, j), b.row, b.column}, m, least(kBlock, k - p),
                    least(kColumns, n - j), accumulate || p > 0, direct, packed);
    }

    /// Returns how many columns multiply_thin() must compute: whole vectors.
    static Index thin_columns(const Product<T>& product) {
        const bool is_thin =
            product.m <= (product.options.transpose_b ? kThinTurned : kThin);
        return is_thin && product.k > 0 ? product.n / kWidth * kWidth : 0;
    }

    /// Computes the first columns of a product with at most `Rows` rows.
    template <int Rows>
    static void multiply_thin(Strided<T> c, Strided<const T> a, Strided<const T> b,
                              const Product<T>& product, Index columns) {
        if constexpr (Rows > 0) {
            if (product.m != Rows)
                return multiply_thin<Rows - 1>(c, a, b, product, columns);
            const Index width = b.column == 1 ? kLongVectors * kWidth : kWidth;
            for (Index j = 0; j < columns; j += width)
                for (Index p = 0; p < product.k; p += kBlock) {
                    const Strided<T> to{c.at(0, j), c.row, 1};
                    const Strided<const T> left{a.at(0, p), a.row, a.column};
                    const Strided<const T> right{b.at(p, j), b.row, b.column};
                    const Index k = least(kBlock, product.k - p);
                    const bool add = product.options.accumulate || p > 0;
                    if (b.column == 1)
                        long_tile<Rows>(to, left, right, k, least(width, columns - j),
                                        add);
                    else
                        turned_tile<Rows>(to, left, right, k, add);
                }
        }
    }

    /// C (Rows, columns) (+)= A (Rows, k) B: rows of B are read from end to end.
    template <int Rows>
    static void long_tile(Strided<T> c, Strided<const T> a, Strided<const T> b, Index k,
                          Index columns, bool add) {
        constexpr int kTogether = 4;
        Vector sums[Rows][kLongVectors] = {};
        Index p = 0;
        for (; p + kTogether <= k; p += kTogether)
            add_rows<Rows, kTogether>(sums, a, b, p, columns);
        for (; p < k; ++p)
            add_rows<Rows, 1>(sums, a, b, p, columns);
        for (int i = 0; i < Rows; ++i)
            for (Index v = 0; v < columns / kWidth; ++v) {
                Unaligned* const to = reinterpret_cast<Unaligned*>(c.at(i, v * kWidth));
                *to = add ? *to + sums[i][v] : sums[i][v];
            }
    }

    /// Adds rows of B, each times its factors, to the sums. Each sum is loaded and stored
    /// once for all of these rows.
    template <int Rows, int Together>
    static void add_rows(Vector (*sums)[kLongVectors], Strided<const T> a,
                         Strided<const T> b, Index p, Index columns) {
        Vector factors[Rows][Together];
        for (int i = 0; i < Rows; ++i)
            for (int q = 0; q < Together; ++q)
                factors[i][q] = *a.at(i, p + q) - Vector{};
        const T* const row = b.at(p, 0);
        for (Index v = 0; v < columns / kWidth; ++v) {
            Vector sum[Rows];
            for (int i = 0; i < Rows; ++i)
                sum[i] = sums[i][v];
#pragma GCC unroll 8
            for (int q = 0; q < Together; ++q) {
                const Vector those =
                    *reinterpret_cast<const Unaligned*>(row + q * b.row + v * kWidth);
                for (int i = 0; i < Rows; ++i)
                    sum[i] = Fused::add(factors[i][q], those, sum[i]);
            }
            for (int i = 0; i < Rows; ++i)
                sums[i][v] = sum[i];
        }
    }

    /// C (Rows, kWidth) (+)= A (Rows, k) B. Columns of B are read along k, where elements
    /// are contiguous: b.row is 1.
    template <int Rows>
    static void turned_tile(Strided<T> c, Strided<const T> a, Strided<const T> b, Index k,
                            bool add) {
        Vector sums[Rows] = {};
        Vector rows[kWidth];
        for (Index p = 0; p < k; p += kWidth) {
            const Index count = least(kWidth, k - p);
            if (count == kWidth)
                load_turned(rows, b.at(p, 0), b.column);
            else
                for (Index q = 0; q < count; ++q)
                    for (Index j = 0; j < kWidth; ++j)
                        rows[q][j] = *b.at(p + q, j);
            for (Index q = 0; q < count; ++q)
#pragma GCC unroll 4
                for (int i = 0; i < Rows; ++i)
                    sums[i] = Fused::add(*a.at(i, p + q) - Vector{}, rows[q], sums[i]);
        }
        for (int i = 0; i < Rows; ++i) {
            Unaligned* const to = reinterpret_cast<Unaligned*>(c.at(i, 0));
            *to = add ? *to + sums[i] : sums[i];
        }
    }

    /// Some columns of B, as whole vectors.
    struct Panel {
        Index first, columns;
        int vectors;
        const T* data;
        Index row;  ///< elements from one row to the next
    };

    // NOLINTNEXTLINE(readability-function-size): slower with a struct of parameters.
    static void multiply_block(Strided<T> c, Strided<const T> a, Strided<const T> b,
                               Index m, Index k, Index n, bool add, bool direct,
                               T* packed) {
        Panel panels[kColumns / kWidth];
        const int count = make_panels(panels, b, k, n, direct, packed);
        for (Index i = 0; i < m; i += kRows)
            for (int at = 0; at < count; ++at) {
                const Panel& panel = panels[at];
                by_vectors<kVectors>({c.at(i, panel.first), c.row, c.column},
                                     {a.at(i, 0), a.row, a.column}, panel, k,
                                     least(kRows, m - i), add);
            }
    }

    /// Cuts columns into panels of about the same width.
    static int make_panels(Panel* panels, Strided<const T> b, Index k, Index n,
                           bool direct, T* packed) {
        const Index vectors = (n + kWidth - 1) / kWidth;
        const auto count = static_cast<int>((vectors + kVectors - 1) / kVectors);
        Index first = 0;
        for (int at = 0; at < count; ++at) {
            const auto own = static_cast<int>(vectors / count + (at < vectors % count));
            Panel& panel = panels[at];
            panel = {first, least(own * kWidth, n - first), own, b.at(0, first), b.row};
            if (!direct || panel.columns < own * kWidth) {
                pack(packed, {panel.data, b.row, b.column}, k, panel.columns,
                     own * kWidth);
                panel.data = packed;
                panel.row = own * kWidth;
                packed += k * own * kWidth;
            }
            first += panel.columns;
        }
        return count;
    }

    /// Copies columns row by row; each row is padded with zeros to `width`.
    static void pack(T* to, Strided<const T> from, Index k, Index columns, Index width) {
        if (from.column != 1) return pack_turned(to, from, k, columns, width);
        for (Index p = 0; p < k; ++p, to += width) {
            const T* row = from.at(p, 0);
            for (Index j = 0; j < columns; ++j)
                to[j] = row[j];
            for (Index j = columns; j < width; ++j)
                to[j] = 0;
        }
    }

    static void pack_turned(T* to, Strided<const T> from, Index k, Index columns,
                            Index width) {
        for (Index j = 0; j < width; j += kWidth) {
            Index p = 0;
            if (j + kWidth <= columns && from.row == 1)
                for (; p + kWidth <= k; p += kWidth)
                    turn(to + p * width + j, width, from.at(p, j), from.column);
            for (; p < k; ++p)
                for (Index i = j; i < j + kWidth; ++i)
                    to[p * width + i] = i < columns ? *from.at(p, i) : 0;
        }
    }

    static void turn(T* to, Index to_row, const T* from, Index from_row) {
        Vector rows[kWidth];
        load_turned(rows, from, from_row);
        for (Index i = 0; i < kWidth; ++i)
            *reinterpret_cast<Unaligned*>(to + i * to_row) = rows[i];
    }

    /// Transposes a square of kWidth by kWidth. Each pass interleaves rows i and i +
    /// kWidth / 2, as the two halves of a pack of cards are shuffled. After log2(kWidth)
    /// passes the square is transposed.
    static void load_turned(Vector* rows, const T* from, Index from_row) {
        for (Index i = 0; i < kWidth; ++i)
            rows[i] = *reinterpret_cast<const Unaligned*>(from + i * from_row);
#pragma GCC unroll 4
        for (Index times = 1; times < kWidth; times *= 2) {
            Vector merged[kWidth];
#pragma GCC unroll 8
            for (Index i = 0; i < kWidth / 2; ++i) {
                merged[2 * i] = merge<0>(rows[i], rows[i + kWidth / 2], Places{});
                merged[2 * i + 1] =
                    merge<kWidth / 2>(rows[i], rows[i + kWidth / 2], Places{});
            }
#pragma GCC unroll 16
            for (Index i = 0; i < kWidth; ++i)
                rows[i] = merged[i];
        }
    }

    using Places = std::make_index_sequence<Bytes / sizeof(T)>;

    /// Interleaves the elements First, First + 1, … of a and b.
    template <Index First, std::size_t... Place>
    static Vector merge(Vector a, Vector b, std::index_sequence<Place...>) {
        return __builtin_shufflevector(a, b, (First + Place / 2 + Place % 2 * kWidth)...);
    }

    template <int Vectors>
    static void by_vectors(Strided<T> c, Strided<const T> a, const Panel& panel, Index k,
                           Index rows, bool add) {
        if constexpr (Vectors > 0) {
            if (panel.vectors != Vectors)
                return by_vectors<Vectors - 1>(c, a, panel, k, rows, add);
            if (rows < kRows)
                return by_rows<kRows - 1, Vectors>(c, a, panel, k, rows, add);
            // Strides that are known at compile time make addresses cheap.
            if (a.column == 1)
                return tile<kRows, Vectors>(c, a.data, a.row, 1, panel, k, add);
            if (a.row == 1)
                return tile<kRows, Vectors>(c, a.data, 1, a.column, panel, k, add);
            tile<kRows, Vectors>(c, a.data, a.row, a.column, panel, k, add);
        }
    }

    template <int Rows, int Vectors>
    static void by_rows(Strided<T> c, Strided<const T> a, const Panel& panel, Index k,
                        Index rows, bool add) {
        if constexpr (Rows > 0) {
            if (rows != Rows)
                return by_rows<Rows - 1, Vectors>(c, a, panel, k, rows, add);
            tile<Rows, Vectors>(c, a.data, a.row, a.column, panel, k, add);
        }
    }

    /// C (Rows, panel) (+)= A (Rows, k) times the panel (k, …).
    // NOLINTBEGIN(readability-function-cognitive-complexity): cut into two functions, the
    // sums leave their registers, and a product takes a sixth longer.
    template <int Rows, int Vectors>
    [[gnu::always_inline]] static inline void tile(Strided<T> c, const T* a, Index a_row,
                                                   Index a_column, const Panel& panel,
                                                   Index k, bool add) {
        // A large C is not in the caches, and there is time to fetch it.
        if (c.column == 1) {
#pragma GCC unroll 16
            for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v)
                    __builtin_prefetch(c.at(i, v * kWidth), 1);
        }
        Vector sums[Rows][Vectors] = {};
        const T* b = panel.data;
        for (Index p = 0; p < k; ++p, a += a_column, b += panel.row) {
            Vector columns[Vectors];
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v)
                columns[v] = *reinterpret_cast<const Unaligned*>(b + v * kWidth);
#pragma GCC unroll 16
            for (int i = 0; i < Rows; ++i) {
                const Vector factor = a[i * a_row] - Vector{};  // the same in each place
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v)
                    sums[i][v] = Fused::add(factor, columns[v], sums[i][v]);
            }
        }
        if (c.column == 1 && panel.columns == Vectors * kWidth) {
#pragma GCC unroll 16
            for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) {
                    Unaligned* const to =
                        reinterpret_cast<Unaligned*>(c.at(i, v * kWidth));
                    *to = add ? *to + sums[i][v] : sums[i][v];
                }
            return;
        }
        T values[Rows][Vectors * kWidth];
        for (int i = 0; i < Rows; ++i)
            for (int v = 0; v < Vectors; ++v)
                *reinterpret_cast<Unaligned*>(values[i] + v * kWidth) = sums[i][v];
        for (int i = 0; i < Rows; ++i)
            for (Index j = 0; j < panel.columns; ++j)
                *c.at(i, j) = add ? *c.at(i, j) + values[i][j] : values[i][j];
    }
    // NOLINTEND(readability-function-cognitive-complexity)
};

}  // namespace

}  // namespace lockstep::sim
