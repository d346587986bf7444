// Tests how a whole is put together from parts that ranks kept.

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"

namespace lockstep::test {

namespace {

/// Returns the numbers first, first + 1, …
HostTensor counted(Shape shape, int first) {
    HostTensor tensor(shape, DType::f64);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, static_cast<double>(first + i));
    return tensor;
}

/// Each rank keeps one row of a whole of three rows. All ranks keep a second tensor, and
/// rank 1 keeps a third tensor.
RunReport three_ranks() {
    return sim::make_cluster(3)->run([](Rank& rank) {
        const Part part = row_part({3, 2}, rank.index(), 1);
        rank.keep("rows", rank.device().upload(counted({1, 2}, 2 * rank.index())), part);
        rank.keep("all", rank.device().upload(counted({2}, 7)));
        if (rank.index() == 1) rank.keep("one", rank.device().upload(counted({2}, 9)));
    });
}

std::string refused_whole(const RunReport& report, const std::string& name) {
    return refusal([&] { (void)report.whole(name); });
}

}  // namespace

TEST_CASE("shards of ranks are put together by their parts", "[report][sim]") {
    const RunReport report = three_ranks();
    CHECK(report.whole("rows") == counted({3, 2}, 0));
    CHECK(report.whole("all") == counted({2}, 7));
    CHECK(report.whole("one") == counted({2}, 9));
    CHECK(read_report(report_bytes(report)).whole("rows") == counted({3, 2}, 0));
}

TEST_CASE("parts that make no whole are refused with rank and element",
          "[report][errors]") {
    RunReport report = three_ranks();
    CHECK(refused_whole(report, "none") == "no rank kept 'none'");

    report.ranks[2].kept.at("all").set(1, 5);
    CHECK(refused_whole(report, "all") ==
          "'all': ranks 1 and 2 kept different bits of element 1 of (2): 8 and 5");

    RunReport overlapping = three_ranks();
    overlapping.ranks[2].kept_parts.at("rows") = row_part({3, 2}, 1, 1);
    CHECK(refused_whole(overlapping, "rows") ==
          "'rows': ranks 1 and 2 kept different bits of element 2 of (3, 2): 2 and 4");

    RunReport gap = three_ranks();
    gap.ranks[1].kept.erase("rows");
    CHECK(refused_whole(gap, "rows") == "'rows': no rank kept element 2 of (3, 2)");

    RunReport wholes = three_ranks();
    wholes.ranks[1].kept_parts.at("rows") = row_part({4, 2}, 1, 1);
    CHECK(refused_whole(wholes, "rows") ==
          "'rows': rank 1 kept a part of f64 (4, 2), but a lower rank kept a part of f64 "
          "(3, 2)");
    RunReport dtypes = three_ranks();
    dtypes.ranks[1].kept.at("all") = dtypes.ranks[1].kept.at("all").as(DType::f32);
    CHECK(
        refused_whole(dtypes, "all") ==
        "'all': rank 1 kept a part of f32 (2), but a lower rank kept a part of f64 (2)");
}

TEST_CASE("a tensor with another shape than its part is refused", "[report][errors]") {
    const auto refused = [](const Part& part) {
        return refusal([&] {
            sim::make_cluster(1)->run([&](Rank& rank) {
                const SourceLine at{"train.cpp", 7};
                rank.keep("x", rank.device().zeros({2, 2}, DType::f64), part, at);
            });
        });
    };
    CHECK(refused(row_part({4, 2}, 2, 2)).empty());
    CHECK(refused(row_part({4, 2}, 2, 1)) ==
          "rank 0: train.cpp:7: keep('x'): the tensor has shape (2, 2), but its part has "
          "(1, 2)");
    CHECK(refused(column_part({2, 4}, 3, 2)) ==
          "rank 0: train.cpp:7: keep('x'): its part does not fit into the whole of shape "
          "(2, 4)");
}

TEST_CASE("a later tensor without a part is whole", "[report][sim]") {
    const RunReport report = sim::make_cluster(1)->run([](Rank& rank) {
        const Tensor x = rank.device().upload(counted({2}, 0));
        rank.keep("x", x, row_part({4}, 2, 2));
        rank.keep("x", x);
    });
    CHECK(report.whole("x") == counted({2}, 0));
}

}  // namespace lockstep::test
