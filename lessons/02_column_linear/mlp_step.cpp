#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/02_column_linear/column_linear.hpp"

namespace lockstep::lessons {

namespace {

// lesson: gelu-of-a-sum
// Of a layer by rows: GELU of each rank's terms and then g, and in the
// right order.
void apply_gelu(Rank& rank, const HostTensor& own_x,
                const HostTensor& own_weight) {
    Device& device = rank.device();
    const Tensor terms =
        device.matmul(device.upload(own_x), device.upload(own_weight),
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

/// Where the two differ most.
std::int64_t widest_gap(const HostTensor& a, const HostTensor& b) {
    std::int64_t at = 0;
    for (std::int64_t i = 1; i < a.elements(); ++i)
        if (std::abs(a.at(i) - b.at(i)) > std::abs(a.at(at) - b.at(at)))
            at = i;
    return at;
}

}  // namespace

void ColumnLinear::show_gelu_of_a_sum(Page& page) {
    const Task task = rows_task(options(), ranks_);
    const HostTensor& weight = task.weights.at("linear.weight");
    const RunReport report =
        make_cluster(options().without_full_check(), ranks_)
            ->run([&](Rank& rank) {
                apply_gelu(rank,
                           columns_of_rank(task.x, rank.index(), ranks_),
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
        table.rows.push_back({fmt::format("device {}", rank),
                              cell(rank, "terms"),
                              cell(rank, "GELU of terms")});
    if (ranks_ > kShownRanks)
        table.rows.push_back({"and the others", "-", "-"});
    table.rows.push_back({"sum", cell(0, "sum"), cell(0, "sum of GELUs")});
    page.table(table);
    page.text(fmt::format(
        "GELU of the sum, {}, is {}{}.", cell(0, "sum"),
        cell(0, "GELU of the sum"),
        ranks_ > 1 ? fmt::format(", not {}", cell(0, "sum of GELUs"))
                   : ", as one device has all terms"));
}

void ColumnLinear::pair(Page& page) {
    page.text(
        "How few messages does an MLP need, two layers with GELU between "
        "them? Say that the first layer is by rows. Then each device has "
        "terms of sums, and GELU of terms does not add up to GELU of a "
        "sum:");
    show_gelu_of_a_sum(page);
    page.text(
        "So by rows the first layer needs an all-reduce before GELU. By "
        "columns it needs none: a device has its own columns with all "
        "their terms, and GELU works number by number. The second layer, "
        "by rows, takes just these columns. One f before the first layer "
        "and one g after the second are all:");
    page.quote("parallel-mlp");
    page.predict("How many all-reduces is that, forward and backward?", 2,
                 "all-reduces", "g forward + f backward");

    const auto task_of = [&](MlpSplit split) {
        return mlp_task(sizes_, split, options().dtype, options().seed);
    };
    const Task alone = task_of(MlpSplit::none);
    const Task together = task_of(MlpSplit::columns_then_rows);
    mlp_alone_ = pass_alone(alone, true);
    mlp_together_ = pass_together(together, true);
    record_mlp(alone, together);
    page.check(Check::equal(
        "all-reduces that device 0 took part in",
        static_cast<double>(collectives(mlp_together_, 0)), 2));
    check_bound(page,
                fmt::format("MLP {0} -> {1} -> {0}, {2} rows: y, dx and "
                            "gradients against one device, largest "
                            "relative difference",
                            sizes_.hidden, sizes_.inner, sizes_.rows),
                largest_difference(results(mlp_together_, together),
                                   results(mlp_alone_, alone)));
    std::int64_t unlike = 0;
    for (const char* name : {"y", "dx"})
        unlike += differing_on_any(mlp_together_,
                                   kept(mlp_together_, 0, name), name);
    check_equal(page,
                "numbers of y and dx that are not the same on all devices",
                unlike);
}

void ColumnLinear::record_mlp(const Task& alone, const Task& together) {
    record().inputs.insert_or_assign("mlp/x", alone.x);
    record().inputs.insert_or_assign("mlp/dy", alone.dy);
    for (const auto& [name, tensor] : mlp_alone_.ranks.front().kept)
        if (name.starts_with("initial/"))
            record().inputs.insert_or_assign("mlp/" + name, tensor);
    for (const auto& [name, tensor] : results(mlp_alone_, alone))
        record().outputs.insert_or_assign("mlp_alone/" + name, tensor);
    for (const auto& [name, tensor] : results(mlp_together_, together))
        record().outputs.insert_or_assign("mlp_columns_rows/" + name,
                                          tensor);
    record().runs.emplace_back("mlp_alone", mlp_alone_);
    record().runs.emplace_back("mlp_columns_rows", mlp_together_);
}

}  // namespace lockstep::lessons
