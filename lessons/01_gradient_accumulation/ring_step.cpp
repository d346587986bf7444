#include "lessons/01_gradient_accumulation/ring_step.hpp"

#include <cmath>

#include <fmt/format.h>

#include "lessons/01_gradient_accumulation/cost_step.hpp"
#include "lessons/01_gradient_accumulation/gradient_accumulation.hpp"
#include "sim/cluster.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/parallel/ring_collectives.hpp"
#include "src/report/compare.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kElements = 1000;

/// Every rank's buffer holds random values; all end with the sum.
Program reduce_with(bool by_hand, const LessonOptions& options) {
    return
        [by_hand, dtype = options.dtype, seed = options.seed](Rank& rank) {
            const Tensor buffer = rank.device().empty({kElements}, dtype);
            rank.device().random_normal(buffer, {seed, "ring/buffer"}, 0, 1,
                                        rank.index() * kElements);
            if (by_hand)
                ring_all_reduce(rank.device(), rank.world(), buffer);
            else
                rank.world().all_reduce(buffer).wait();
            rank.keep("sum", buffer);
        };
}

void show_algorithms(Page& page, const ClusterSpec& spec) {
    page.text(fmt::format(
        "A ring is not always best: its 2(n-1) steps each pay the latency "
        "alpha. Recursive doubling takes lg n steps, but sends the whole "
        "buffer in each. Rabenseifner's halving and doubling takes 2 lg n "
        "steps and the ring's bytes. On this cluster's links inside a node "
        "({}), by the alpha-beta model:",
        link_text(spec.inside)));
    page.verbatim(
        "  ring                2(n-1) alpha + 2(n-1)/n S/beta\n"
        "  recursive doubling  lg n alpha   + lg n S/beta\n"
        "  halving, doubling   2 lg n alpha + 2(n-1)/n S/beta");
    Table table{{"devices", "buffer", "ring", "recursive doubling",
                 "halving, doubling", "wins"},
                {}};
    for (const int n : {4, 64}) {
        for (const std::int64_t bytes :
             {std::int64_t{1} << 10, std::int64_t{1} << 16,
              std::int64_t{1} << 20, std::int64_t{1} << 26}) {
            const double ring =
                ring_all_reduce_seconds(spec.inside, bytes, n);
            const double doubling =
                recursive_doubling_seconds(spec.inside, bytes, n);
            const double halving =
                halving_doubling_seconds(spec.inside, bytes, n);
            const char* winner = doubling < ring && doubling < halving
                                     ? "recursive doubling"
                                 : halving < ring  ? "halving, doubling"
                                 : halving == ring ? "none"
                                                   : "ring";
            table.rows.push_back({std::to_string(n), bytes_text(bytes),
                                  time_text(picoseconds(ring)),
                                  time_text(picoseconds(doubling)),
                                  time_text(picoseconds(halving)), winner});
        }
    }
    page.table(table);
    page.text(
        "The model leaves out that halving and doubling talks to far "
        "neighbours, whose messages share links, and that a ring keeps to "
        "near ones. That is why rings carry the large buffers of real "
        "clusters.");
}

/// NCCL may add in another order than the ring.
void check_sums(Page& page, const RunReport& by_hand,
                const RunReport& built_in) {
    double worst = 0;
    double bound = 0;
    for (std::size_t rank = 0; rank < by_hand.ranks.size(); ++rank) {
        const Comparison sums =
            compare_tensors(by_hand.ranks[rank].kept,
                            built_in.ranks[rank].kept, std::nullopt);
        const HostTensor& sum = by_hand.ranks[rank].kept.at("sum");
        bound = sum_bound(sum.dtype(),
                          static_cast<std::int64_t>(by_hand.ranks.size()));
        const double here = sums.tensors.front().largest_relative;
        if (!(here <= worst)) worst = here;
        if (std::isnan(worst)) break;
    }
    page.check(Check::at_most(
        "sums by hand against all_reduce's, largest relative difference",
        worst, bound));
}

}  // namespace

void show_ring(Page& page, const LessonOptions& options, int ranks,
               bool has_numbers) {
    const RunReport by_hand =
        make_cluster(options, ranks, true)->run(reduce_with(true, options));
    const RunReport built_in =
        make_cluster(options, ranks)->run(reduce_with(false, options));
    page.timeline(
        fmt::format("{} elements round a ring of {}", kElements, ranks),
        by_hand);

    const RankReport& first = by_hand.ranks.front();
    page.predict(
        fmt::format("How many messages does each of {} devices send?",
                    ranks),
        2.0 * (ranks - 1), "messages",
        fmt::format("2(n-1) = 2 * {}", ranks - 1));
    page.check(Check::equal("messages that device 0 sent",
                            static_cast<double>(first.messages_sent()),
                            2.0 * (ranks - 1)));
    std::int64_t byte_gap = 0;
    std::int64_t message_gap = 0;
    double values = 0;
    for (std::size_t rank = 0; rank < by_hand.ranks.size(); ++rank) {
        const RankReport& mine = by_hand.ranks[rank];
        const RankReport& theirs = built_in.ranks[rank];
        byte_gap += std::abs(mine.bytes_sent() - theirs.bytes_sent());
        message_gap +=
            std::abs(mine.messages_sent() - theirs.messages_sent());
        if (has_numbers && !(mine.kept.at("sum") == theirs.kept.at("sum")))
            values += 1;
    }
    page.check(Check::equal(
        "bytes by hand less bytes of all_reduce, over all devices",
        static_cast<double>(byte_gap), 0));
    page.check(Check::equal("messages by hand less messages of all_reduce",
                            static_cast<double>(message_gap), 0));
    if (has_numbers && options.has_virtual_time())
        page.check(Check::equal(
            "devices whose sums differ from all_reduce's in any bit",
            values, 0));
    else if (has_numbers)
        check_sums(page, by_hand, built_in);
    show_algorithms(page, load_cluster(options.cluster));
}

namespace {

/// What an all-reduce of the buffer costs on `ranks` devices of the
/// classroom.
RunReport reduce_in_classroom(int ranks, std::int64_t elements) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.numbers = false;
    return sim::make_cluster(std::move(options))
        ->run([elements](Rank& rank) {
            const Tensor buffer =
                rank.device().empty({elements}, DType::f32);
            rank.world().all_reduce(buffer).wait();
        });
}

}  // namespace

void show_predictions(Page& page) {
    constexpr std::int64_t kParameters = 1'000'000;
    const RunReport eight = reduce_in_classroom(8, kParameters);
    page.predict(
        "A model of 1,000,000 f32 parameters is trained on 8 devices. "
        "Bytes that each device sends a step?",
        static_cast<double>(eight.ranks.front().bytes_sent()), "bytes",
        "2 * 7/8 * 4,000,000");
    page.predict("How long does that all-reduce take, in microseconds?",
                 static_cast<double>(eight.makespan()) / 1e6, "us",
                 "2 * 7 * (1 us + 500,000 B / (10 GB/s)) = 14 * 51 us");
    const RunReport two = reduce_in_classroom(2, kParameters);
    page.predict("And on 2 devices?",
                 static_cast<double>(two.makespan()) / 1e6, "us",
                 "2 * 1 * (1 us + 2,000,000 B / (10 GB/s)) = 2 * 201 us");
    page.check(Check::equal(
        "bytes against 2(n-1)/n S",
        static_cast<double>(eight.ranks.front().bytes_sent()), 7e6));
    page.check(Check::equal("picoseconds against 2(n-1)(alpha + S/n beta)",
                            static_cast<double>(eight.makespan()), 714e6));
    page.text(
        "Four times the devices, but not twice the time: what a device "
        "sends grows from S to almost 2 S and stays there. Only the "
        "latency goes on growing with n.");
}

void GradientAccumulation::ring(Page& page) {
    page.text(
        fmt::format("How does an all-reduce work? Cut the buffer into {} "
                    "chunks. Each chunk travels round the ring of devices, "
                    "gathering every device's part; then the finished "
                    "chunks travel round once more. Nobody waits for one "
                    "busy root, and every link carries the same load.",
                    parts_));
    page.quote("ring-reduce-scatter");
    page.quote("ring-all-gather");
    show_ring(page, options(), parts_, has_numbers());
}

void GradientAccumulation::predict(Page& page) {
    page.text(
        "Now you. Three questions about a larger run, with a pencil; then "
        "look. The cluster is `classroom`: a message of b bytes takes 1 us "
        "+ b / (10 GB/s) inside a node of 8 devices.");
    show_predictions(page);
}

}  // namespace lockstep::lessons
