#pragma once

#include <cmath>
#include <numbers>

#include "src/comm/chunks.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons::one_device {

// What one device would compute, in plain loops over f64.

inline HostTensor transposed(const HostTensor& a) {
    const std::int64_t rows = a.shape()[0], columns = a.shape()[1];
    HostTensor b({columns, rows}, DType::f64);
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
            b.set(j * rows + i, a.at(i * columns + j));
    return b;
}

/// a (m, k) times b (k, n).
inline HostTensor product(const HostTensor& a, const HostTensor& b) {
    const std::int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
    HostTensor c({m, n}, DType::f64);
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::int64_t term = 0; term < k; ++term)
                sum += a.at(i * k + term) * b.at(term * n + j);
            c.set(i * n + j, sum);
        }
    return c;
}

inline HostTensor sum_of_rows(const HostTensor& a) {
    const std::int64_t columns = a.shape()[1];
    HostTensor sum({columns}, DType::f64);
    for (std::int64_t i = 0; i < a.elements(); ++i)
        sum.set(i % columns, sum.at(i % columns) + a.at(i));
    return sum;
}

inline HostTensor columns(const HostTensor& a, const Chunk& part) {
    return transposed(transposed(a).rows(part.begin, part.count));
}

/// A linear layer's x, parameters and gradient of y, and what comes of them.
struct Linear {
    HostTensor x, weight, bias, dy;

    HostTensor y() const {
        HostTensor y = product(x, transposed(weight));
        for (std::int64_t i = 0; i < y.elements(); ++i)
            y.set(i, y.at(i) + bias.at(i % bias.elements()));
        return y;
    }
    HostTensor dx() const { return product(dy, weight); }
    HostTensor d_weight() const { return product(transposed(dy), x); }
    HostTensor d_bias() const { return sum_of_rows(dy); }
};

/// u Φ(u), with Φ the normal distribution function.
inline HostTensor gelu(HostTensor u) {
    for (std::int64_t i = 0; i < u.elements(); ++i)
        u.set(i, u.at(i) * std::erfc(-u.at(i) / std::numbers::sqrt2) / 2);
    return u;
}

/// dy (Φ(u) + u φ(u)), with φ the normal density.
inline HostTensor gelu_backward(const HostTensor& u, HostTensor dy) {
    for (std::int64_t i = 0; i < u.elements(); ++i) {
        const double at = u.at(i);
        const double density =
            std::exp(-at * at / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
        dy.set(i, dy.at(i) * (std::erfc(-at / std::numbers::sqrt2) / 2 + at * density));
    }
    return dy;
}

/// Both layers of an MLP, with all their x and dy, of which the second's x and the
/// first's dy are made.
struct Mlp {
    Linear first, second;

    Mlp(Linear one, Linear two) : first(std::move(one)), second(std::move(two)) {
        const HostTensor between = first.y();
        second.x = gelu(between);
        first.dy = gelu_backward(between, second.dx());
    }
};

}  // namespace lockstep::lessons::one_device
