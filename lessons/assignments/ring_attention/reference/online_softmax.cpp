#include "online_softmax.hpp"

#include <algorithm>
#include <cmath>

namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// Raises a row's maximum to `larger`, which is not -infinity, and scales the
/// row's sums accordingly.
void rescale(OnlineSoftmax& state, std::size_t row, double larger) {
    const auto width = static_cast<std::size_t>(state.width);
    const double factor = std::exp(state.maximum[row] - larger);
    state.maximum[row] = larger;
    state.sum[row] *= factor;
    for (std::size_t c = row * width; c < (row + 1) * width; ++c)
        state.output[c] *= factor;
}

}  // namespace

void absorb(OnlineSoftmax& state, const std::vector<double>& scores,
            const std::vector<double>& values) {
    const auto width = static_cast<std::size_t>(state.width);
    const std::size_t keys = values.size() / width;
    for (std::size_t row = 0; row < state.maximum.size(); ++row) {
        double larger = state.maximum[row];
        for (std::size_t key = 0; key < keys; ++key)
            larger = std::max(larger, scores[row * keys + key]);
        if (larger == kNothing) continue;
        rescale(state, row, larger);
        for (std::size_t key = 0; key < keys; ++key) {
            const double p = std::exp(scores[row * keys + key] - larger);
            state.sum[row] += p;
            for (std::size_t c = 0; c < width; ++c)
                state.output[row * width + c] += p * values[key * width + c];
        }
    }
}

void merge(OnlineSoftmax& state, const OnlineSoftmax& other) {
    const auto width = static_cast<std::size_t>(state.width);
    for (std::size_t row = 0; row < state.maximum.size(); ++row) {
        const double larger = std::max(state.maximum[row], other.maximum[row]);
        if (larger == kNothing) continue;
        rescale(state, row, larger);
        const double factor = std::exp(other.maximum[row] - larger);
        state.sum[row] += factor * other.sum[row];
        for (std::size_t c = row * width; c < (row + 1) * width; ++c)
            state.output[c] += factor * other.output[c];
    }
}

std::vector<double> finish(const OnlineSoftmax& state) {
    const auto width = static_cast<std::size_t>(state.width);
    std::vector<double> mean = state.output;
    for (std::size_t i = 0; i < mean.size(); ++i)
        if (state.sum[i / width] > 0) mean[i] /= state.sum[i / width];
    return mean;
}
