#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/device/support.hpp"

namespace lockstep::test {

/// Checks that the order is that of std::stable_sort, and that rows and counts fit this
/// order.
inline void sorts(Bench& bench, const HostTensor& ids, std::int64_t bound,
                  bool by_columns) {
    const std::int64_t places = ids.elements();
    std::vector<std::int64_t> sorted(static_cast<std::size_t>(places));
    std::iota(sorted.begin(), sorted.end(), 0);
    const auto column = [&](std::int64_t place) {
        return by_columns ? place % ids.shape().columns() : 0;
    };
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::int64_t i, std::int64_t j) {
        return std::pair(ids.at(i), column(i)) < std::pair(ids.at(j), column(j));
    });
    HostTensor order(ids.shape(), DType::i32), rows({places}, DType::i32),
        counts({bound, 1}, DType::i32);
    for (std::int64_t i = 0; i < places; ++i) {
        const std::int64_t place = sorted[static_cast<std::size_t>(i)];
        const auto id = static_cast<std::int64_t>(ids.at(place));
        order.set(i, static_cast<double>(place));
        rows.set(i, static_cast<double>(place / ids.shape().columns()));
        counts.set(id, counts.at(id) + 1);
    }
    const Tensor got_order = bench->empty(order.shape(), DType::i32);
    const Tensor got_rows = bench->empty(rows.shape(), DType::i32);
    const Tensor got_counts = bench->empty(counts.shape(), DType::i32);
    // The old values of the counts must not matter.
    bench->fill(got_counts, 7);
    bench->sort_ids(got_order, got_rows, got_counts, bench->upload(ids), by_columns);
    REQUIRE(bench->download(got_order) == order);
    REQUIRE(bench->download(got_rows) == rows);
    REQUIRE(bench->download(got_counts) == counts);
}

TEST_CASE("Ids are sorted, and equal ones keep their order", kTags) {
    const Shape shape =
        GENERATE(Shape{1, 1}, Shape{7, 1}, Shape{5, 2}, Shape{300, 3}, Shape{2, 40, 8},
                 Shape{1000, 6}, Shape{0, 2}, Shape{4, 0});
    const std::int64_t bound = GENERATE(1, 2, 8, 300, 5000);
    const bool by_columns = GENERATE(false, true);
    CAPTURE(shape.text(), bound, by_columns);
    Bench bench;
    sorts(bench, random_indices(shape, bound, "ids"), bound, by_columns);
    // All ids are in the upper half.
    HostTensor upper = random_indices(shape, bound - bound / 2, "upper");
    for (std::int64_t i = 0; i < upper.elements(); ++i)
        upper.set(i, upper.at(i) + static_cast<double>(bound / 2));
    sorts(bench, upper, bound, by_columns);
}

TEST_CASE("An id beyond the counts is named", kTags) {
    const std::int32_t wrong = GENERATE(-1, 4, 5);
    Bench bench;
    const Tensor ids =
        bench->upload(HostTensor::of<std::int32_t>({1, 2}, std::vector{3, wrong}));
    const Tensor order = bench->zeros({2}, DType::i32);
    const Tensor rows = bench->zeros({2}, DType::i32);
    const Tensor counts = bench->zeros({4}, DType::i32);
    refuses(fmt::format("sort_ids: index 1 is {}, outside [0, 4)", wrong),
            [&] { bench->sort_ids(order, rows, counts, ids); });
    REQUIRE(bench->download(counts) == HostTensor({4}, DType::i32));
    refuses("sort_ids: index 0 is 3, outside [0, 0)",
            [&] { bench->sort_ids(order, rows, bench->empty({0}, DType::i32), ids); });
    const Tensor none = bench->empty({0}, DType::i32);
    bench->sort_ids(none, none, none, none.reshaped({0, 2}));
}

}  // namespace lockstep::test
