#pragma once

#include <string>

#include "tests/device/support.hpp"

namespace lockstep::test {

/// The size of an attention: m queries, n keys, `heads` heads of one operand and `few`
/// heads of the other, and the columns before and behind the heads.
struct HeadCase {
    std::int64_t m, n, batches, heads, few, width;
    std::int64_t before = 0, behind = 0;

    /// Returns which of the few heads serves head `head`.
    std::int64_t serving(std::int64_t head) const { return head / (heads / few); }
};

inline std::string text_of(const HeadCase& test_case) {
    return fmt::format("m {}, n {}, {} batches, {} and {} heads of width {}, {} + {}",
                       test_case.m, test_case.n, test_case.batches, test_case.heads,
                       test_case.few, test_case.width, test_case.before,
                       test_case.behind);
}

/// Values (rows, batches, columns) on the host and on the device, and their heads.
struct HeadOperand {
    HeadOperand(Bench& bench, const HeadCase& test_case, std::int64_t heads,
                std::int64_t rows, DType dtype, const std::string& name)
        : values(random_values(
              {rows, test_case.batches,
               test_case.before + heads * test_case.width + test_case.behind},
              dtype, name)),
          view{bench->upload(values), heads, test_case.width, test_case.before} {}

    std::int64_t place(std::int64_t batch, std::int64_t head, std::int64_t row,
                       std::int64_t column) const {
        return view.offset(batch, head) + row * view.pitch() + column;
    }
    double at(std::int64_t batch, std::int64_t head, std::int64_t row,
              std::int64_t column) const {
        return values.at(place(batch, head, row, column));
    }
    /// Calls `f(batch, head, row, column)` for each element in the order of memory. Head
    /// -1 means the columns before and behind the heads; `column` then counts from the
    /// tensor's first column.
    template <typename F>
    void each_element(F&& f) const {
        for (std::int64_t row = 0; row < view.rows(); ++row)
            for (std::int64_t batch = 0; batch < view.batches(); ++batch)
                for (std::int64_t column = 0; column < view.columns(); ++column) {
                    const std::int64_t own = column - view.first;
                    if (own < 0 || own >= view.heads * view.width)
                        f(batch, -1, row, column);
                    else
                        f(batch, own / view.width, row, own % view.width);
                }
    }
    /// Returns the value of a column outside the heads.
    double outside(std::int64_t batch, std::int64_t row, std::int64_t column) const {
        return values.at((row * view.batches() + batch) * view.columns() + column);
    }

    HostTensor values;
    Heads view;
};

/// Rows [first, first + count) of a view.
inline Heads rows_of(const Heads& heads, std::int64_t first, std::int64_t count) {
    return {heads.tensor.rows(first, count), heads.heads, heads.width, heads.first};
}

}  // namespace lockstep::test
