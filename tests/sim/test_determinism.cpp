#include <sstream>

#include "src/parallel/ring_collectives.hpp"
#include "src/report/chrome_trace.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

/// Returns everything in a report as text.
std::string text_of(const RunReport& report) {
    std::ostringstream text;
    text.precision(17);
    for (const RankReport& rank : report.ranks) {
        text << rank.time.end << ' ' << rank.time.compute << ' '
             << rank.time.communication << ' ' << rank.time.waiting << ' '
             << rank.memory.peak << ' ' << rank.flops << '\n';
        for (const Traffic& traffic : rank.traffic)
            text << traffic.group << traffic.verb << traffic.between_nodes
                 << traffic.bytes_sent << ' ' << traffic.messages_received << '\n';
        for (const auto& [name, tensor] : rank.kept) {
            text << name;
            for (std::int64_t i = 0; i < tensor.elements(); ++i)
                text << ' ' << tensor.at(i);
            text << '\n';
        }
    }
    return text.str() + chrome_trace({{"run", report}});
}

/// Checks that the program gives the same report in every world.
void check_same(int ranks, const Program& program, const std::string& spec = "classroom",
                sim::CheckLevel check = sim::check_level_asked()) {
    std::string first;
    for (World world : all_worlds()) {
        world.check = check;
        const std::string text =
            text_of(make_cluster_in(world, ranks, spec, true)->run(program));
        if (first.empty()) first = text;
        REQUIRE(text == first);
    }
}

/// Every rank exchanges messages with random ranks and computes for random times. There
/// are two communicators without an order between them, so messages compete for ports at
/// unequal times.
void random_exchange(Rank& rank, std::uint64_t seed) {
    Device& device = rank.device();
    const int n = rank.size();
    const RandomStream stream(seed, "exchange");
    const auto other = rank.world().split(0, -rank.index(), "other");
    const Tensor sum = device.zeros({64}, DType::f64);
    device.fill(sum, rank.index());
    for (std::uint64_t round = 0; round < 6; ++round) {
        const auto shift =
            static_cast<int>(1 + stream.bits(round) % static_cast<unsigned>(n - 1));
        const auto work = static_cast<std::int64_t>(
            stream.bits(1000 + round * 100 + static_cast<unsigned>(rank.index())) % 50);
        for (std::int64_t i = 0; i < work; ++i)
            device.scale(sum.slice(0, 1), 1);
        const Tensor in = device.zeros({64}, DType::f64);
        const Tensor third = device.zeros({64}, DType::f64);
        Work first = rank.world()
                         .group()
                         .send(sum, (rank.index() + shift) % n)
                         .recv(in, (rank.index() + n - shift) % n)
                         .start();
        const Tensor copy = device.zeros({64}, DType::f64);
        device.copy(copy, sum);
        Group group = other->group();
        group.send(copy, (other->rank() + shift) % n)
            .recv(third, (other->rank() + n - shift) % n);
        Work second = group.start();
        second.wait();
        device.scale(third, 0.5);
        first.wait();
        device.add(sum, in, 0.25);
        device.add(sum, third, 0.25);
    }
    rank.world().all_reduce(sum, Reduction::mean).wait();
    rank.keep("sum", sum);
}

}  // namespace

TEST_CASE("random exchanges give the same in every world", "[sim][determinism]") {
    for (std::uint64_t seed = 0; seed < 5; ++seed)
        check_same(9, [seed](Rank& rank) { random_exchange(rank, seed); });
}

TEST_CASE("shared network ports give the same in every world", "[sim][determinism]") {
    for (std::uint64_t seed = 0; seed < 3; ++seed)
        check_same(
            20, [seed](Rank& rank) { random_exchange(rank, seed); }, "v100");
}

TEST_CASE("long products on workers give the same in every world", "[sim][determinism]") {
    check_same(4, [](Rank& rank) {
        Device& device = rank.device();
        const Tensor a = device.empty({150, 150}, DType::f32);
        device.random_normal(a, {3, "a"}, 0, 0.1, rank.index());
        for (int i = 0; i < 3; ++i) {
            const Tensor b = device.matmul(a, a);
            device.add(a, b);
            ring_all_reduce(device, rank.world(), a);
            device.scale(a, 0.25);
        }
        rank.keep("a", a);
    });
}

TEST_CASE("a race has one outcome: data moves when no rank runs", "[sim][determinism]") {
    const auto race = [](Rank& rank) {
        const Tensor x = rank.device().zeros({16}, DType::f32);
        rank.device().fill(x, rank.index());
        Work work = rank.world().all_reduce(x);
        rank.device().fill(x, 10 + rank.index());  // written before the wait: a mistake
        work.wait();
        rank.keep("x", x);
    };
    check_same(4, race, "classroom", sim::CheckLevel::cheap);
}

TEST_CASE("shapes only: the same time, bytes and memory as with numbers",
          "[sim][determinism]") {
    const auto run = [](bool numbers) {
        sim::ClusterOptions options;
        options.ranks = 5;
        options.spec = load_cluster("h100-data-sheet");
        options.numbers = numbers;
        return sim::make_cluster(options)->run(
            [](Rank& rank) { random_exchange(rank, 1); });
    };
    RunReport full = run(true);
    RunReport shapes_only = run(false);
    for (RunReport* report : {&full, &shapes_only})
        for (RankReport& rank : report->ranks)
            rank.kept.clear();
    CHECK(text_of(full) == text_of(shapes_only));
}

namespace {

/// Rank 0 sends to ranks 1 and 2 over two communicators; if it swaps, first to rank 2.
void send_over_two(Rank& rank, bool swaps) {
    const auto other = rank.world().split(0, rank.index(), "other");
    const Tensor x = rank.device().zeros({1000}, DType::f32);
    if (rank.index() == 1) rank.world().recv(x, 0).wait();
    if (rank.index() == 2) other->recv(x, 0).wait();
    if (rank.index() > 0) return;
    Communicator& first = swaps ? *other : rank.world();
    Communicator& second = swaps ? rank.world() : *other;
    Work one = first.send(x, swaps ? 2 : 1);
    second.send(x, swaps ? 1 : 2).wait();
    one.wait();
}

}  // namespace

TEST_CASE(
    "a rank's messages at one time, over several communicators, are sent in program "
    "order",
    "[sim][determinism]") {
    for (const bool swaps : {false, true}) {
        const auto program = [swaps](Rank& rank) { send_over_two(rank, swaps); };
        check_same(3, program);
        const RunReport report = make_cluster_in({}, 3)->run(program);
        CHECK((report.ranks[2].time.end < report.ranks[1].time.end) == swaps);
    }
}

}  // namespace lockstep::test
