#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/05_ring_self_attention/ring_lesson.hpp"
#include "lessons/runner/most_held.hpp"
#include "src/core/units.hpp"
#include "src/report/compare.hpp"

namespace lockstep::lessons {

namespace {

/// The whole losses: every rank has the share of its tokens.
std::vector<double> losses_of(const RunReport& report) {
    std::vector<double> losses;
    for (const RankReport& rank : report.ranks) {
        const std::vector<double>& own = rank.series.at("loss");
        losses.resize(own.size(), 0);
        for (std::size_t i = 0; i < own.size(); ++i)
            losses[i] += own[i];
    }
    return losses;
}

/// What rank 0 kept under prefix + NAME, as variant/prefix + NAME.
void put(NamedTensors& tensors, const std::string& variant,
         const RunReport& report, const std::string& prefix) {
    for (const auto& [name, tensor] : report.ranks.front().kept) {
        const bool wanted = prefix.empty()
                                ? name.find('/') == std::string::npos
                                : name.starts_with(prefix);
        if (wanted) tensors.insert_or_assign(variant + "/" + name, tensor);
    }
}

/// The largest relative difference of a first gradient; NaN where there is
/// one.
double gradient_difference(const NamedTensors& outputs,
                           const std::string& variant) {
    double worst = 0;
    for (const auto& [name, tensor] : outputs) {
        const std::string prefix = variant + "/grad/";
        if (!name.starts_with(prefix)) continue;
        const double here = relative_difference(
            tensor, outputs.at("gpt_1/grad/" + name.substr(prefix.size())));
        if (!(here <= worst)) worst = here;
    }
    return worst;
}

}  // namespace

std::vector<double> RingLesson::train_on(Page& page, const ContextRun& run,
                                         const std::string& variant) {
    const RunReport report = train_gpt_context(
        *make_cluster(options(), run.ranks()), *task_, run, options().dtype,
        options().seed, page.progress(variant, task_->steps).get());
    record().runs.emplace_back(variant, report);
    if (!has_numbers()) return {};
    const bool alone = run.attention != AttentionKind::shared;
    if (alone) put(record().inputs, "gpt", report, "initial/");
    put(record().outputs, variant, report, "grad/");
    put(record().outputs, variant, report, "");
    std::vector<double> curve = losses_of(report);
    record().outputs.insert_or_assign(
        variant + "/loss",
        HostTensor::of(Shape::flat(static_cast<std::int64_t>(curve.size())),
                       curve));
    if (!alone)
        check_values(
            page,
            fmt::format("{}: first gradients against one device's, "
                        "largest relative difference",
                        variant),
            gradient_difference(record().outputs, variant),
            options().dtype == DType::f64 ? 1e-11 : 2e-4);
    return curve;
}

void RingLesson::show_contexts(Page& page, std::int64_t capacity) {
    const auto longest = [&](const ContextRun& run, std::int64_t step) {
        return step * largest_that([&](std::int64_t steps) {
                   return training_peak(*task_, run, steps * step,
                                        options().dtype) <= capacity;
               });
    };
    const std::int64_t core =
        longest(ContextRun::alone(AttentionKind::core), 1);
    const std::int64_t flash =
        longest(ContextRun::alone(AttentionKind::flash), 1);
    Table table{{"", "longest context"}, {}};
    table.rows.push_back(
        {"one such device, all weights held", count_text(core)});
    table.rows.push_back(
        {"one such device, online softmax", count_text(flash)});
    table.rows.push_back(
        {fmt::format("{} of them, {}", ranks_, name_of(method_)),
         count_text(longest(shared_run(), 2 * ranks_))});
    page.table(table);
    const auto times = [&](std::int64_t alone) {
        return static_cast<double>(task_->sizes.context) /
               static_cast<double>(std::max<std::int64_t>(alone, 1));
    };
    page.text(fmt::format(
        "The context of {} is {:.3g} times what one such device holds "
        "that keeps all weights of attention, and {:.3g} times what it "
        "holds with online softmax.",
        task_->sizes.context, times(core), times(flash)));
    if (times(flash) < 1)
        page.text(
            "The scores that Ring Self-Attention keeps weigh more than "
            "sharing out the rest saves.");
}

ContextRun RingLesson::shared_run() const {
    return {1, ranks_, method_, order_, AttentionKind::shared};
}

void RingLesson::train(Page& page) {
    const GptSizes& sizes = task_->sizes;
    const std::int64_t capacity =
        training_peak(*task_, shared_run(), sizes.context, options().dtype);
    page.text(fmt::format(
        "Now a GPT on a text (layers: {}, hidden size: {}, heads: {}, "
        "sequences a step: {}) with a context of {}. Let a device have "
        "{}: just what each of {} needs to train it together, by the "
        "ledger, and not a byte more. How long a context do such devices "
        "hold?",
        sizes.layers, sizes.block.hidden, sizes.block.heads, task_->batch,
        sizes.context, bytes_text(capacity), ranks_));
    show_contexts(page, capacity);
    page.quote("context-part");
    page.quote("context-training");
    record_gpt_inputs(record(), *task_);
    train_all(page, capacity);
    page.text(
        "To all but attention and the places, tokens of one sequence and "
        "tokens of another are alike: the gradients are added up over all "
        "devices, whether they share out sequences (dp) or the tokens of "
        "each (cp). On a mesh they do both.");
}

void RingLesson::train_all(Page& page, std::int64_t capacity) {
    Curves curves;
    curves.add(
        "1 large device",
        train_on(page, ContextRun::alone(AttentionKind::core), "gpt_1"));
    const std::string all = fmt::format("gpt_{}", ranks_);
    curves.add(fmt::format("{} devices", ranks_),
               train_on(page, shared_run(), all));
    page.check(Check::at_most(
        fmt::format("bytes that each of {} devices held at most, against "
                    "what such a device has",
                    ranks_),
        static_cast<double>(most_held(record().runs.back().second)),
        static_cast<double>(capacity)));
    if (auto mesh = ContextRun::mesh_of(ranks_)) {
        mesh->method = method_;
        mesh->order = order_;
        curves.add(fmt::format("2 x {}", mesh->parts),
                   train_on(page, *mesh, all + "_mesh"));
    }
    if (has_numbers()) curves.show(page);
    check_values(page,
                 "largest difference of a loss from one device's, at any "
                 "step",
                 has_numbers() ? curves.widest_gap() : 0,
                 options().dtype == DType::f64 ? 1e-11 : 1e-3);
}

}  // namespace lockstep::lessons
