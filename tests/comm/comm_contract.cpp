#include "tests/comm/comm_contract.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/mesh.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

/// Returns a value from -10 to 21 for element i of rank r. Values, and sums of them over
/// up to twelve ranks, are exact in every dtype: bf16 has all whole numbers up to 256.
double value(int rank, std::int64_t i) {
    return static_cast<double>((std::int64_t{rank} * 37 + i * 11) % 32 - 10);
}
constexpr double kLargest = 21;

HostTensor filled(Shape shape, DType dtype, int rank) {
    HostTensor values(shape, dtype);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, value(rank, i));
    return values;
}

/// Compares what every rank kept under `name` with expected(rank, element).
void check_kept(const RunReport& report, const std::string& name,
                const std::function<double(int rank, std::int64_t i)>& expected) {
    for (std::size_t r = 0; r < report.ranks.size(); ++r) {
        const auto kept = report.ranks[r].kept.find(name);
        if (kept == report.ranks[r].kept.end()) continue;
        for (std::int64_t i = 0; i < kept->second.elements(); ++i) {
            INFO(name << " of rank " << r << " element " << i << " of "
                      << report.ranks.size());
            REQUIRE(kept->second.at(i) == expected(static_cast<int>(r), i));
        }
    }
}

double epsilon_of(DType dtype) {
    if (dtype == DType::bf16) return Bf16::kEpsilon;
    return dtype == DType::f32 ? std::numeric_limits<float>::epsilon()
                               : std::numeric_limits<double>::epsilon();
}

double reduced(Reduction reduction, int ranks, std::int64_t i) {
    double result = value(0, i);
    for (int r = 1; r < ranks; ++r) {
        const double next = value(r, i);
        if (reduction == Reduction::sum || reduction == Reduction::mean) result += next;
        if (reduction == Reduction::minimum) result = std::min(result, next);
        if (reduction == Reduction::maximum) result = std::max(result, next);
    }
    return result;
}

void check_all_reduce(const MakeCluster& make, int ranks, std::int64_t count,
                      DType dtype) {
    for (const Reduction reduction :
         {Reduction::sum, Reduction::minimum, Reduction::maximum}) {
        const RunReport report = make(ranks)->run([&](Rank& rank) {
            const Tensor in = rank.device().upload(filled({count}, dtype, rank.index()));
            const Tensor out = rank.device().zeros({count}, dtype);
            rank.world().all_reduce(out, in, reduction).wait();
            rank.keep("input", in);
            rank.world().all_reduce(in, reduction).wait();
            rank.keep("out of place", out);
            rank.keep("in place", in);
        });
        const auto expected = [&](int, std::int64_t i) {
            return reduced(reduction, ranks, i);
        };
        check_kept(report, "out of place", expected);
        check_kept(report, "in place", expected);
        check_kept(report, "input", [](int r, std::int64_t i) { return value(r, i); });
    }
    if (!is_floating(dtype)) return;
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        const Tensor in = rank.device().upload(filled({count}, dtype, rank.index()));
        rank.world().all_reduce(in, Reduction::mean).wait();
        rank.keep("mean", in);
    });
    // Either each term or the sum is divided. Each addition rounds.
    const double bound = (ranks + 1) * epsilon_of(dtype) * kLargest;
    for (const RankReport& rank : report.ranks)
        for (std::int64_t i = 0; i < count; ++i)
            REQUIRE(std::abs(rank.kept.at("mean").at(i) -
                             reduced(Reduction::mean, ranks, i) / ranks) <= bound);
}

void check_all_gather(const MakeCluster& make, int ranks, std::int64_t count,
                      DType dtype) {
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        const HostTensor mine = filled({count}, dtype, rank.index());
        const Tensor whole = rank.device().zeros({ranks * count}, dtype);
        rank.world().all_gather(whole, rank.device().upload(mine)).wait();
        rank.keep("out of place", whole);
        rank.device().fill(whole, 0);
        const Tensor block = whole.slice(rank.index() * count, count);
        rank.device().upload_into(block, mine);
        rank.world().all_gather(whole, block).wait();
        rank.keep("in place", whole);
    });
    for (const char* name : {"out of place", "in place"})
        check_kept(report, name, [&](int, std::int64_t i) {
            return value(static_cast<int>(i / count), i % count);
        });
}

void check_reduce_scatter(const MakeCluster& make, int ranks, std::int64_t count,
                          DType dtype) {
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        const Tensor in =
            rank.device().upload(filled({ranks * count}, dtype, rank.index()));
        const Tensor out = rank.device().zeros({count}, dtype);
        rank.world().reduce_scatter(out, in).wait();
        rank.keep("out of place", out);
        const Tensor block = in.slice(rank.index() * count, count);
        rank.world().reduce_scatter(block, in).wait();
        rank.keep("in place", block);
    });
    for (const char* name : {"out of place", "in place"})
        check_kept(report, name, [&](int r, std::int64_t i) {
            return reduced(Reduction::sum, ranks, r * count + i);
        });
}

void check_rooted(const MakeCluster& make, int ranks, std::int64_t count, DType dtype) {
    for (int root = 0; root < ranks; ++root) {
        const RunReport report = make(ranks)->run([&](Rank& rank) {
            Device& device = rank.device();
            const bool is_root = rank.index() == root;
            const Tensor sent = device.upload(filled({count}, dtype, rank.index()));
            rank.world().broadcast(sent, root).wait();
            rank.keep("broadcast", sent);

            const Tensor part = device.upload(filled({count}, dtype, rank.index()));
            const Tensor whole =
                is_root ? device.zeros({ranks * count}, dtype) : Tensor();
            rank.world().gather(whole, part, root).wait();
            if (is_root) rank.keep("gather", whole);
            const Tensor back = device.zeros({count}, dtype);
            rank.world().scatter(back, whole, root).wait();
            rank.keep("scatter", back);

            rank.world().reduce(part, root).wait();
            rank.keep("reduce", part);
        });
        check_kept(report, "broadcast",
                   [&](int, std::int64_t i) { return value(root, i); });
        check_kept(report, "gather", [&](int, std::int64_t i) {
            return value(static_cast<int>(i / count), i % count);
        });
        check_kept(report, "scatter", [](int r, std::int64_t i) { return value(r, i); });
        check_kept(report, "reduce", [&](int r, std::int64_t i) {
            return r == root ? reduced(Reduction::sum, ranks, i) : value(r, i);
        });
    }
}

void check_all_to_all(const MakeCluster& make, int ranks, std::int64_t count,
                      DType dtype) {
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        const Tensor in =
            rank.device().upload(filled({ranks * count}, dtype, rank.index()));
        const Tensor out = rank.device().zeros({ranks * count}, dtype);
        rank.world().all_to_all(out, in).wait();
        rank.keep("all_to_all", out);
    });
    check_kept(report, "all_to_all", [&](int r, std::int64_t i) {
        return value(static_cast<int>(i / count), r * count + i % count);
    });
}

void check_all_to_all_v(const MakeCluster& make, int ranks, std::int64_t count,
                        DType dtype) {
    // Rank r sends (r + 2 * peer) % 3 * `count` rows of two elements to each peer.
    const auto rows = [&](int from, int to) { return (from + 2 * to) % 3 * count; };
    const auto begin = [&](int from, int to) {  // first row that `from` sends to `to`
        std::int64_t sum = 0;
        for (int peer = 0; peer < to; ++peer)
            sum += rows(from, peer);
        return sum;
    };
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        const int me = rank.index();
        std::vector<std::int64_t> sent;
        std::vector<std::int64_t> received;
        std::int64_t arriving = 0;
        for (int peer = 0; peer < ranks; ++peer) {
            sent.push_back(rows(me, peer));
            received.push_back(rows(peer, me));
            arriving += received.back();
        }
        const Tensor in = rank.device().upload(filled({begin(me, ranks), 2}, dtype, me));
        const Tensor out = rank.device().zeros({arriving, 2}, dtype);
        rank.world().all_to_all_v(out, received, in, sent).wait();
        rank.keep("all_to_all_v", out);
        rank.world().all_to_all_v(in, sent, out, received).wait();
        rank.keep("and back", in);
    });
    check_kept(report, "all_to_all_v", [&](int r, std::int64_t i) {
        int from = 0;
        for (; i >= 2 * rows(from, r); ++from)
            i -= 2 * rows(from, r);
        return value(from, 2 * begin(from, r) + i);
    });
    check_kept(report, "and back", [](int r, std::int64_t i) { return value(r, i); });
}

void check_subgroups(const MakeCluster& make, int ranks, std::int64_t count,
                     DType dtype) {
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        const Tensor x = rank.device().upload(filled({count}, dtype, rank.index()));
        std::vector<int> backwards;
        for (int member = ranks - 1; member >= ranks / 2; --member)
            backwards.push_back(member);
        const auto half = rank.world().subgroup(backwards, "half");
        rank.keep_value("member", half != nullptr);
        if (half) {
            const Tensor all = rank.device().zeros({half->size() * count}, dtype);
            half->all_gather(all, x).wait();
            rank.keep("half", all);
        }
        const int columns = ranks % 2 == 0 ? 2 : 1;
        const Mesh mesh(rank.world(), {{"dp", ranks / columns}, {"tp", columns}});
        rank.keep_value("dp", mesh.coordinate("dp"));
        rank.keep_value("tp", mesh.coordinate("tp"));
        const Tensor row = rank.device().zeros({columns * count}, dtype);
        mesh["tp"].all_gather(row, x).wait();
        rank.keep("row", row);
        const Tensor column = rank.device().zeros({ranks / columns * count}, dtype);
        mesh["dp"].all_gather(column, x).wait();
        rank.keep("column", column);
    });
    const int columns = ranks % 2 == 0 ? 2 : 1;
    const auto place = [&](std::int64_t i) { return static_cast<int>(i / count); };
    check_kept(report, "half", [&](int, std::int64_t i) {
        return value(ranks - 1 - place(i), i % count);
    });
    check_kept(report, "row", [&](int r, std::int64_t i) {
        return value(r / columns * columns + place(i), i % count);
    });
    check_kept(report, "column", [&](int r, std::int64_t i) {
        return value(r % columns + place(i) * columns, i % count);
    });
    for (int r = 0; r < ranks; ++r) {
        const auto& series = report.ranks[static_cast<std::size_t>(r)].series;
        CHECK(series.at("member").front() == (r >= ranks / 2 ? 1 : 0));
        CHECK(static_cast<int>(series.at("dp").front()) == r / columns);
        CHECK(series.at("tp").front() == r % columns);
    }
}

void check_messages(const MakeCluster& make, int ranks, std::int64_t count, DType dtype) {
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        const int right = (rank.index() + 1) % ranks;
        const int left = (rank.index() + ranks - 1) % ranks;
        const Tensor in = rank.device().upload(filled({count}, dtype, rank.index()));
        const Tensor out = rank.device().zeros({count}, dtype);
        rank.world().group().send(in, right).recv(out, left).start().wait();
        rank.keep("from the left", out);
        if (ranks == 1) return;
        // One after another along a line: rank 0 sends first.
        if (rank.index() > 0) rank.world().recv(out, left).wait();
        if (rank.index() + 1 < ranks) rank.world().send(in, right).wait();
        rank.keep("along a line", out);
        rank.world().barrier().wait();
    });
    check_kept(report, "from the left",
               [&](int r, std::int64_t i) { return value((r + ranks - 1) % ranks, i); });
    check_kept(report, "along a line",
               [&](int r, std::int64_t i) { return value((r + ranks - 1) % ranks, i); });
}

/// Tests, in one group, the verbs that distribute or collect blocks. The last rank is the
/// root.
void group_of_blocks(Rank& rank, std::int64_t count, DType dtype) {
    Device& device = rank.device();
    const int ranks = rank.size(), last = ranks - 1;
    const Tensor own = device.upload(filled({count}, dtype, rank.index()));
    const Tensor blocks = device.upload(filled({ranks * count}, dtype, rank.index()));
    const Tensor collected = device.zeros({ranks * count}, dtype);
    const Tensor dealt = device.zeros({count}, dtype);
    const Tensor transposed = device.zeros({ranks * count}, dtype);
    rank.world()
        .group()
        .gather(rank.index() == last ? collected : Tensor(), own, last)
        .scatter(dealt, rank.index() == last ? blocks : Tensor(), last)
        .all_to_all(transposed, blocks)
        .start()
        .wait();
    rank.keep("collected", collected);
    rank.keep("dealt", dealt);
    rank.keep("transposed", transposed);
}

void check_groups(const MakeCluster& make, int ranks, std::int64_t count, DType dtype) {
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        Device& device = rank.device();
        const Tensor a = device.upload(filled({count}, dtype, rank.index()));
        const Tensor b = device.upload(filled({count}, dtype, rank.index()));
        const Tensor whole = device.zeros({ranks * count}, dtype);
        const Tensor c = device.upload(filled({count}, dtype, rank.index()));
        rank.world()
            .group()
            .all_reduce(a)
            .broadcast(b, ranks - 1)
            .all_gather(whole, c)
            .start()
            .wait();
        rank.keep("sum", a);
        rank.keep("broadcast", b);
        // Two messages per pair, matched in order.
        const Tensor first = device.zeros({count}, dtype);
        const Tensor second = device.zeros({count}, dtype);
        const int right = (rank.index() + 1) % ranks;
        const int left = (rank.index() + ranks - 1) % ranks;
        rank.world()
            .group()
            .send(a, right)
            .send(b, right)
            .recv(first, left)
            .recv(second, left)
            .start()
            .wait();
        rank.keep("first", first);
        rank.keep("second", second);
        rank.keep("gathered", whole);
        rank.world().group().start().wait();
        group_of_blocks(rank, count, dtype);
    });
    const int last = ranks - 1;
    check_kept(report, "dealt",
               [&](int rank, std::int64_t i) { return value(last, rank * count + i); });
    check_kept(report, "transposed", [&](int rank, std::int64_t i) {
        return value(static_cast<int>(i / count), rank * count + i % count);
    });
    CHECK(report.ranks[last].kept.at("collected") ==
          report.ranks[last].kept.at("gathered"));
    const auto sum = [&](int, std::int64_t i) {
        return reduced(Reduction::sum, ranks, i);
    };
    check_kept(report, "sum", sum);
    check_kept(report, "first", sum);
    check_kept(report, "gathered", [&](int, std::int64_t i) {
        return value(static_cast<int>(i / count), i % count);
    });
    for (const char* name : {"broadcast", "second"})
        check_kept(report, name,
                   [&](int, std::int64_t i) { return value(ranks - 1, i); });
}

void check_wait_any(const MakeCluster& make, int ranks, std::int64_t count, DType dtype) {
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        Device& device = rank.device();
        std::vector<std::unique_ptr<Communicator>> pairs;
        for (int other = 1; other < ranks; ++other)
            pairs.push_back(rank.world().subgroup({0, other}, "pair"));
        if (rank.index() > 0) {
            const Tensor own = device.upload(filled({count}, dtype, rank.index()));
            pairs[rank.index() - 1]->send(own, 0).wait();
            return;
        }
        std::vector<Tensor> arriving;
        std::vector<Work> works;
        for (const auto& pair : pairs) {
            arriving.push_back(device.zeros({count}, dtype));
            works.push_back(pair->recv(arriving.back(), 1));
        }
        for (std::size_t i = 0; i < pairs.size(); ++i) {
            const std::size_t place = wait_any(works);
            rank.keep(std::to_string(place + 1), arriving[place]);
        }
        CHECK_THROWS_AS(wait_any(works), UsageError);
    });
    REQUIRE(report.ranks[0].kept.size() == static_cast<std::size_t>(ranks - 1));
    for (int other = 1; other < ranks; ++other) {
        const HostTensor& kept = report.ranks[0].kept.at(std::to_string(other));
        for (std::int64_t i = 0; i < count; ++i)
            REQUIRE(kept.at(i) == value(other, i));
    }
}

void check_split(const MakeCluster& make, int ranks, std::int64_t count, DType dtype) {
    const RunReport report = make(ranks)->run([&](Rank& rank) {
        // Ranks with the same parity, in reverse order.
        const auto half = rank.world().split(rank.index() % 2, -rank.index(), "half");
        const Tensor x = rank.device().upload(filled({count}, dtype, rank.index()));
        const Tensor all = rank.device().zeros({half->size() * count}, dtype);
        half->all_gather(all, x).wait();
        rank.keep("half", all);
        rank.keep_value("size", half->size());
        const auto nobody = rank.world().split(
            rank.index() == 0 ? Communicator::kNoColor : 3, 0, "all but one");
        rank.keep_value("left out", nobody == nullptr);
    });
    check_kept(report, "half", [&](int r, std::int64_t i) {
        const int members = (ranks - r % 2 + 1) / 2;
        const int place = static_cast<int>(i / count);
        return value(r % 2 + 2 * (members - 1 - place), i % count);
    });
    for (int r = 0; r < ranks; ++r) {
        const RankReport& rank = report.ranks[static_cast<std::size_t>(r)];
        CHECK(static_cast<int>(rank.series.at("size").front()) ==
              (ranks - r % 2 + 1) / 2);
        CHECK(rank.series.at("left out").front() == (r == 0 ? 1 : 0));
    }
}

}  // namespace

const std::vector<CommRule>& comm_rules() {
    static const std::vector<CommRule> kAll{
        {"an all-reduce leaves the reduction on every rank", check_all_reduce},
        {"an all-gather leaves every rank's block on every rank", check_all_gather},
        {"a reduce-scatter leaves each rank its block of the sum", check_reduce_scatter},
        {"rooted collectives move to and from any root", check_rooted},
        {"an all-to-all transposes blocks and ranks", check_all_to_all},
        {"an all-to-all of unequal parts, some empty, transposes them",
         check_all_to_all_v},
        {"subgroups by lists of members, and meshes, have the requested members",
         check_subgroups},
        {"sends and recvs meet, in groups and one by one", check_messages},
        {"a group's operations progress together, in order", check_groups},
        {"works can be waited for as they end", check_wait_any},
        {"a split makes communicators by colour and key", check_split}};
    return kAll;
}

}  // namespace lockstep::test
