#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lessons/02_column_linear/lesson.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/report/timeline.hpp"

namespace lockstep::lessons {

namespace {

// lesson: gelu-of-a-sum
// Of a layer by rows: GELU of each rank's terms and then g, and in the
// right order.
void apply_gelu(Rank& rank, const HostTensor& own_x, const HostTensor& own_weight) {
    Device& device = rank.device();
    const Tensor terms = device.matmul(device.upload(own_x), device.upload(own_weight),
                                       {.transpose_b = true});
    rank.keep("terms", terms);

    const Tensor early = device.gelu(terms);
    rank.keep("GELU of terms", early);
    rank.world().all_reduce(early).wait();
    rank.keep("sum of GELUs", early);

    rank.world().all_reduce(terms).wait();
    rank.keep("sum", terms);
    rank.keep("GELU of the sum", device.gelu(terms));
}
// lesson: end

/// Returns the index at which the two differ most.
std::int64_t widest_gap(const HostTensor& a, const HostTensor& b) {
    std::int64_t at = 0;
    for (std::int64_t i = 1; i < a.elements(); ++i)
        if (std::abs(a.at(i) - b.at(i)) > std::abs(a.at(at) - b.at(at))) at = i;
    return at;
}

}  // namespace

void ColumnLinear::show_gelu_of_a_sum(Page& page) {
    const Task task = rows_task(options(), ranks_);
    const HostTensor& weight = task.weights.at("linear.weight");
    const RunReport report =
        make_cluster(options().without_full_check(), ranks_)->run([&](Rank& rank) {
            apply_gelu(rank, columns_of_rank(task.x, rank.index(), ranks_),
                       columns_of_rank(weight, rank.index(), ranks_));
        });
    page.quote("gelu-of-a-sum");
    if (!has_numbers()) return;
    const HostTensor& early = kept(report, 0, "sum of GELUs");
    const HostTensor& late = kept(report, 0, "GELU of the sum");
    const std::int64_t at = widest_gap(early, late);
    const auto cell = [&](int rank, const char* name) {
        return number(kept(report, rank, name).at(at));
    };
    Table table{{"one number of y", "terms", "GELU of terms"}, {}};
    for (int rank = 0; rank < std::min(ranks_, kShownRanks); ++rank)
        table.rows.push_back({fmt::format("device {}", rank), cell(rank, "terms"),
                              cell(rank, "GELU of terms")});
    if (ranks_ > kShownRanks) table.rows.push_back({"and the others", "-", "-"});
    table.rows.push_back({"sum", cell(0, "sum"), cell(0, "sum of GELUs")});
    page.table(table);
    page.text(fmt::format("GELU of the sum, {}, is {}{}.", cell(0, "sum"),
                          cell(0, "GELU of the sum"),
                          ranks_ > 1 ? fmt::format(", not {}", cell(0, "sum of GELUs"))
                                     : ", as one device has all terms"));
}

void ColumnLinear::pair(Page& page) {
    page.text(
        "How few messages does an MLP need, two layers with GELU between them? Say that "
        "the first layer is by rows. Then each device has terms of sums, and GELU of "
        "terms does not add up to GELU of a sum:");
    show_gelu_of_a_sum(page);
    page.text(
        "So by rows the first layer needs an all-reduce before GELU. By columns it needs "
        "none: a device has its own columns with all their terms, and GELU works number "
        "by number. The second layer, by rows, takes just these columns. One f before "
        "the first layer and one g after the second are all:");
    page.quote("mlp");
    page.quote("parallel-layers");
    page.predict("How many all-reduces is that, forward and backward?", 2, "all-reduces",
                 "g forward + f backward");

    const auto task_of = [&](MlpSplit split) {
        return mlp_task(sizes_, split, options().dtype, options().seed);
    };
    const Task alone = task_of(MlpSplit::none);
    mlp_alone_ = pass_alone(alone, true);
    mlp_together_ = pass_together(task_of(MlpSplit::columns_then_rows), true);
    record_mlp(alone);
    page.check(Check::equal("all-reduces that device 0 took part in",
                            static_cast<double>(collectives(mlp_together_, 0)), 2));
    check_bound(
        page,
        fmt::format("MLP {0} -> {1} -> {0}, {2} rows: y, dx and gradients against one "
                    "device, largest relative difference",
                    sizes_.hidden, sizes_.inner, sizes_.rows),
        largest_difference(results(mlp_together_), results(mlp_alone_)));
    std::int64_t unlike = 0;
    for (const char* name : {"y", "dx"})
        unlike += differing_on_any(mlp_together_, kept(mlp_together_, 0, name), name);
    check_equal(page, "numbers of y and dx that are not the same on all devices", unlike);
}

void ColumnLinear::record_mlp(const Task& alone) {
    record().inputs.insert_or_assign("mlp/x", alone.x);
    record().inputs.insert_or_assign("mlp/dy", alone.dy);
    record().models["mlp"] = {{"kind", "mlp"},         {"hidden", sizes_.hidden},
                              {"inner", sizes_.inner}, {"gelu", "exact"},
                              {"bias", true},          {"backward_from", "dy"}};
    for (const auto& [name, tensor] : mlp_alone_.ranks.front().kept)
        if (name.starts_with("initial/"))
            record().inputs.insert_or_assign("mlp/" + name, tensor);
    for (const auto& [name, tensor] : results(mlp_alone_))
        record().outputs.insert_or_assign("mlp_alone/" + name, tensor);
    for (const auto& [name, tensor] : results(mlp_together_))
        record().outputs.insert_or_assign("mlp_columns_rows/" + name, tensor);
    record().runs.emplace_back("mlp_alone", mlp_alone_);
    record().runs.emplace_back("mlp_columns_rows", mlp_together_);
    record().titles = {{"mlp_alone", "the MLP on one device"},
                       {"mlp_columns_rows", "columns, rows"},
                       {"mlp_gathered", "columns, gather, columns"}};
}

namespace {

/// The collectives of the two halves of a pass.
struct Calls {
    std::vector<CollectiveCall> forward, backward;
};

Calls calls_of(const MlpSizes& sizes, MlpSplit split, DType dtype, int ranks) {
    const auto call = [&](Verb verb, std::int64_t columns) {
        // An all-gather's count is that of one rank's part.
        const int parts = verb == Verb::all_gather ? ranks : 1;
        return CollectiveCall{verb, sizes.rows * columns / parts, bytes_of(dtype), ranks};
    };
    if (split == MlpSplit::columns_then_rows)
        return {{call(Verb::all_reduce, sizes.hidden)},
                {call(Verb::all_reduce, sizes.hidden)}};
    return {{call(Verb::all_gather, sizes.inner), call(Verb::all_gather, sizes.hidden)},
            {call(Verb::all_reduce, sizes.inner), call(Verb::all_reduce, sizes.hidden)}};
}

std::int64_t bytes_of_calls(const std::vector<CollectiveCall>& calls, int rank) {
    std::int64_t bytes = 0;
    for (const CollectiveCall& call : calls)
        bytes += collective_traffic(call, rank).bytes_sent;
    return bytes;
}

/// Bytes counted less bytes by the formula, over all ranks and both halves.
std::int64_t byte_gap(const RunReport& report, const Calls& calls) {
    std::int64_t gap = 0;
    for (int rank = 0; rank < static_cast<int>(report.ranks.size()); ++rank) {
        const std::int64_t forward = bytes_of_half(report, rank, "forward");
        const std::int64_t backward = bytes_of_half(report, rank, "backward");
        gap += std::abs(forward - bytes_of_calls(calls.forward, rank)) +
               std::abs(backward - bytes_of_calls(calls.backward, rank)) +
               std::abs(report.ranks[rank].bytes_sent() - forward - backward);
    }
    return gap;
}

std::vector<std::string> cost_row(const std::string& name, const RunReport& report) {
    const RankReport& first = report.ranks.front();
    constexpr auto kActivations = static_cast<std::size_t>(MemoryCategory::activations);
    return {name, bytes_text(bytes_of_half(report, 0, "forward")),
            bytes_text(bytes_of_half(report, 0, "backward")),
            time_text(pass_time(report)),
            bytes_text(first.memory.category_peak[kActivations])};
}

}  // namespace

void ColumnLinear::count_bytes(Page& page) {
    const Task task =
        mlp_task(sizes_, MlpSplit::gathered, options().dtype, options().seed);
    const RunReport gathered = pass_together(task, true);
    record().runs.emplace_back("mlp_gathered", gathered);
    for (const auto& [name, tensor] : results(gathered))
        record().outputs.insert_or_assign("mlp_gathered/" + name, tensor);

    page.text(
        "What do these two messages cost, and what would it cost to put columns together "
        "instead? Let both layers be by columns, each with an all-gather of its output. "
        "The result is as right:");
    page.quote("gathered-mlp");
    check_bound(
        page,
        "gathered, y, dx and gradients against one device, largest relative difference",
        largest_difference(results(gathered), results(mlp_alone_)));
    page.text(fmt::format(
        "With S the bytes of x, {}, and I those between the layers, {}, a device sends:",
        bytes_text(task.x.bytes()),
        bytes_text(sizes_.rows * sizes_.inner * bytes_of(options().dtype))));
    page.verbatim(
        "                             forward           backward\n"
        "  columns, rows              2(t-1)/t S        2(t-1)/t S\n"
        "  columns, gather, columns   (t-1)/t (I + S)   2(t-1)/t (I + S)");
    show_bytes(page, gathered);
    show_time(page, gathered);
    show_larger_layers(page);
}

void ColumnLinear::show_bytes(Page& page, const RunReport& gathered) {
    const std::int64_t size = bytes_of(options().dtype);
    const std::int64_t s = sizes_.rows * sizes_.hidden * size;
    const std::int64_t i = sizes_.rows * sizes_.inner * size;
    const auto in_pair = static_cast<double>(sent(4, s));
    const auto gathering = static_cast<double>(sent(3, i + s));
    page.predict(
        "Columns, then rows: how many bytes does a device send in a forward and a "
        "backward?",
        in_pair, "bytes",
        fmt::format("4(t-1)/t * S = 4 * {}/{} * {}", ranks_ - 1, ranks_, s));
    page.predict("And with gathering?", gathering, "bytes",
                 fmt::format("3(t-1)/t * (I + S) = 3 * {}/{} * ({} + {})", ranks_ - 1,
                             ranks_, i, s));
    page.check(Check::equal("columns, rows: bytes that device 0 sent",
                            static_cast<double>(mlp_together_.ranks.front().bytes_sent()),
                            in_pair));
    page.check(Check::equal("columns, gather, columns: bytes that device 0 sent",
                            static_cast<double>(gathered.ranks.front().bytes_sent()),
                            gathering));
    const auto calls = [&](MlpSplit split) {
        return calls_of(sizes_, split, options().dtype, ranks_);
    };
    page.check(Check::equal(
        "bytes counted less bytes by formula, of all devices, halves and ways",
        static_cast<double>(byte_gap(mlp_together_, calls(MlpSplit::columns_then_rows)) +
                            byte_gap(gathered, calls(MlpSplit::gathered))),
        0));
}

void ColumnLinear::show_time(Page& page, const RunReport& gathered) {
    Table table{{"of one device", "sent forward", "sent backward", "time", "activations"},
                {}};
    table.rows = {cost_row("one device alone", mlp_alone_),
                  cost_row("columns, rows", mlp_together_),
                  cost_row("columns, gather, columns", gathered)};
    page.table(table);
    page.chart(timeline_chart(mlp_together_, "columns, rows"));
    page.chart(timeline_chart(gathered, "columns, gather, columns"));
    page.text(
        "Time is from the begin of F to the end of B; what stands before makes the "
        "model. Backward, an all-reduce starts as soon as dx is there, and the weight's "
        "gradient is made meanwhile.");
    if (!options().has_virtual_time()) return;
    const ClusterSpec spec = load_cluster(options().cluster);
    std::vector<int> members(static_cast<std::size_t>(ranks_));
    std::iota(members.begin(), members.end(), 0);
    Picoseconds time = 0;
    const Calls calls =
        calls_of(sizes_, MlpSplit::columns_then_rows, options().dtype, ranks_);
    for (const auto& half : {calls.forward, calls.backward})
        for (const CollectiveCall& call : half)
            time += collective_time(call, spec, members);
    page.check(Check::equal(
        "columns, rows: picoseconds of messages against 2 * 2(t-1) (alpha + S/(t beta))",
        static_cast<double>(mlp_together_.ranks.front().time.communication),
        static_cast<double>(time)));
}

namespace {

/// Time of a pass on virtual devices that compute shapes only, and have memory for it.
Picoseconds virtual_time(const LessonOptions& options, const MlpSizes& sizes,
                         MlpSplit split, int ranks) {
    sim::ClusterOptions cluster;
    cluster.ranks = ranks;
    cluster.spec = load_cluster(options.cluster);
    cluster.spec.memory_bytes = 0;
    cluster.numbers = false;
    cluster.trace = true;
    cluster.check = sim::CheckLevel::cheap;
    return pass_time(pass(*sim::make_cluster(std::move(cluster)),
                          mlp_shapes(sizes, split, options.dtype)));
}

}  // namespace

void ColumnLinear::show_larger_layers(Page& page) {
    page.text(
        fmt::format("Arithmetic grows with rows * hidden * inner, bytes with rows * "
                    "hidden. So messages matter less, the wider the layer. The same pass "
                    "of wider MLPs on virtual devices of {}, shapes only:",
                    options().cluster));
    Table table{{"hidden", "one device", "columns, rows", "gain",
                 "columns, gather, columns", "gain"},
                {}};
    for (const std::int64_t factor : {1, 4, 16}) {
        const MlpSizes sizes{sizes_.rows, factor * sizes_.hidden, factor * sizes_.inner};
        const Picoseconds alone = virtual_time(options(), sizes, MlpSplit::none, 1);
        std::vector<std::string> row{std::to_string(sizes.hidden), time_text(alone)};
        for (const MlpSplit split : {MlpSplit::columns_then_rows, MlpSplit::gathered}) {
            const Picoseconds time = virtual_time(options(), sizes, split, ranks_);
            row.push_back(time_text(time));
            row.push_back(time > 0 ? fmt::format("{:.2f}", static_cast<double>(alone) /
                                                               static_cast<double>(time))
                                   : "-");
        }
        table.rows.push_back(row);
    }
    page.table(table);
}

}  // namespace lockstep::lessons
