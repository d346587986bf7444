// These tests are public. The grader tests more: other numbers of ranks, other sizes, and
// what your program costs.

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/comm/chunks.hpp"
#include "src/course/public_test.hpp"

using namespace lockstep;

using Collective = void (*)(Rank&, const Tensor&);

/// Returns element i of rank r's buffer.
double value(int rank, std::int64_t i) {
    return 100 * (rank + 1) + static_cast<double>(i);
}

/// Every rank calls the collective with its own buffer. Keeps the buffers afterwards.
RunReport run(int ranks, std::int64_t elements, Collective collective) {
    return sim::make_cluster(ranks)->run([=](Rank& rank) {
        HostTensor values({elements}, DType::f64);
        for (std::int64_t i = 0; i < elements; ++i)
            values.set(i, value(rank.index(), i));
        const Tensor buffer = rank.device().upload(values);
        collective(rank, buffer);
        rank.keep("buffer", buffer);
    });
}

HostTensor sum_of_all(int ranks, std::int64_t elements) {
    HostTensor sum({elements}, DType::f64);
    for (std::int64_t i = 0; i < elements; ++i)
        for (int rank = 0; rank < ranks; ++rank)
            sum.set(i, sum.at(i) + value(rank, i));
    return sum;
}

void test_reduce_scatter(int ranks, std::int64_t elements) {
    const RunReport report = run(ranks, elements, adapters::reduce_scatter);
    const HostTensor sum = sum_of_all(ranks, elements);
    for (int rank = 0; rank < ranks; ++rank) {
        const Chunk own = chunk(elements, ranks, rank);
        expect_close(report.ranks[rank].kept.at("buffer").rows(own.begin, own.count),
                     sum.rows(own.begin, own.count),
                     fmt::format("the chunk of rank {}", rank));
    }
}

void test_all_gather(int ranks, std::int64_t elements) {
    const RunReport report = run(ranks, elements, adapters::all_gather);
    HostTensor gathered({elements}, DType::f64);
    for (int rank = 0; rank < ranks; ++rank) {
        const Chunk own = chunk(elements, ranks, rank);
        for (std::int64_t i = own.begin; i < own.begin + own.count; ++i)
            gathered.set(i, value(rank, i));
    }
    for (int rank = 0; rank < ranks; ++rank)
        expect_close(report.ranks[rank].kept.at("buffer"), gathered,
                     fmt::format("the buffer of rank {}", rank));
}

void test_all_reduce(int ranks, std::int64_t elements) {
    const RunReport report = run(ranks, elements, adapters::all_reduce);
    for (int rank = 0; rank < ranks; ++rank)
        expect_close(report.ranks[rank].kept.at("buffer"), sum_of_all(ranks, elements),
                     fmt::format("the buffer of rank {}", rank));
}

/// Expects that every message goes to the rank before the sender.
void test_route(int ranks, std::int64_t elements) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.trace = true;
    const RunReport report = sim::make_cluster(options)->run([=](Rank& rank) {
        adapters::all_reduce(rank, rank.device().zeros({elements}, DType::f64));
    });
    for (const TraceFlow& flow : report.flows)
        expect_equal(flow.destination_rank, (flow.source_rank + ranks - 1) % ranks,
                     fmt::format("the rank that rank {} sends to", flow.source_rank));
}

void test_bytes(int ranks, std::int64_t elements) {
    const RunReport report = run(ranks, elements, adapters::all_reduce);
    for (int rank = 0; rank < ranks; ++rank)
        expect_equal(report.ranks[rank].bytes_sent(),
                     2 * (ranks - 1) * elements * 8 / ranks,
                     fmt::format("bytes that rank {} sends", rank));
}

int main() {
    PublicTest test;
    test.check("a1.1 reduce_scatter, 4 ranks, 12 elements",
               [] { test_reduce_scatter(4, 12); });
    test.check("a1.1 reduce_scatter, 4 ranks, 11 elements",
               [] { test_reduce_scatter(4, 11); });
    test.check("a1.2 all_gather, 4 ranks, 12 elements", [] { test_all_gather(4, 12); });
    test.check("a1.3 all_reduce, 4 ranks, 12 elements", [] { test_all_reduce(4, 12); });
    test.check("a1.3 all_reduce, 5 ranks, 3 elements", [] { test_all_reduce(5, 3); });
    test.check("a1.3 all_reduce, 1 rank", [] { test_all_reduce(1, 5); });
    test.check("a1.3 all_reduce goes round the ring", [] { test_route(4, 12); });
    test.check("a1.3 all_reduce sends 2(n-1)/n of the buffer", [] { test_bytes(4, 12); });
    return test.finish();
}
