#include <set>

#include <fmt/format.h>

#include "lessons/04_pipeline_1f1b/gpt_pipeline.hpp"
#include "lessons/04_pipeline_1f1b/lesson.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/core/units.hpp"

namespace lockstep::lessons {

namespace {

/// Tensors that differ in any bit.
int different(const std::map<std::string, HostTensor>& a,
              const std::map<std::string, HostTensor>& b) {
    int count = 0;
    for (const auto& [name, tensor] : a) {
        const auto found = b.find(name);
        if (found == b.end() || found->second != tensor) ++count;
    }
    return count + static_cast<int>(b.size() > a.size());
}

/// Tensors of which several ranks kept copies that are not the same.
int differing_copies(const RunReport& report) {
    std::map<std::string, const HostTensor*> first;
    std::set<std::string> differing;
    for (const RankReport& rank : report.ranks)
        for (const auto& [name, tensor] : rank.kept) {
            const auto [it, added] = first.emplace(name, &tensor);
            if (!added && *it->second != tensor) differing.insert(name);
        }
    return static_cast<int>(differing.size());
}

}  // namespace

void PipelineLesson::check_bits(Page& page, const RunReport& report, int replicas,
                                const std::string& variant) {
    if (replicas > 1 || task_->sizes.tied)
        page.check(Check::equal(
            fmt::format(
                "tensors of {} of which two ranks have copies that differ in any bit",
                variant),
            differing_copies(report), 0));
    // On a GPU the library chooses how it adds up, by shape and by card.
    if (replicas == 1 && !task_->sizes.tied && options().backend == "sim")
        page.check(Check::equal(
            fmt::format(
                "gradients and weights of {} that differ from one device's in any bit",
                variant),
            different(kept_under(alone_, "grad/"), kept_under(report, "grad/")) +
                different(kept_under(alone_, ""), kept_under(report, "")),
            0));
}

std::vector<double> PipelineLesson::train_by(Page& page, const Schedule& schedule,
                                             int replicas, const std::string& variant) {
    const GptTraining training{*task_, options().dtype, options().seed, replicas};
    const auto progress = page.progress(variant, task_->steps);
    const bool alone = schedule.stages == 1;
    const int ranks = schedule.stages * replicas;
    const auto cluster = make_cluster(options(), ranks);
    const RunReport report = alone ? train_gpt_alone(*cluster, schedule.micro_batches,
                                                     training, progress.get())
                                   : train_gpt_pipeline(*cluster, PipelinePlan(schedule),
                                                        training, progress.get());
    record().runs.emplace_back(variant, report);
    std::vector<double> curve = losses_of(report);
    if (!has_numbers()) return curve;
    record_training(record(), variant, alone, curve, [&](const std::string& prefix) {
        return kept_under(report, prefix);
    });
    if (alone)
        alone_ = report;
    else
        check_bits(page, report, replicas, variant);
    return curve;
}

/// Shows whether interleaving pays with so few layers.
void PipelineLesson::show_interleaved_pace(Page& page) {
    const RunReport* plain = nullptr;
    const RunReport* rounds = nullptr;
    for (const auto& [name, report] : record().runs) {
        if (name == "1f1b") plain = &report;
        if (name == "interleaved") rounds = &report;
    }
    if (!plain || !rounds || rounds->makespan() < plain->makespan()) return;
    page.text(
        "Why does interleaving not win here, as it did in step 6? It has twice as many "
        "parts, and this GPT has few layers: a part that is no more than an embedding or "
        "a norm stands beside one that is a whole block, and the largest sets the pace. "
        "With more blocks (--set layers=…) parts are more alike, and it gains.");
}

/// Time and memory of the runs of this step, which are the last in the record.
void PipelineLesson::show_costs(Page& page, const std::vector<std::string>& names) {
    if (!options().has_virtual_time()) return;
    page.text(
        fmt::format("What differs is time and memory, here on the devices of the cluster "
                    "\"{}\", with parts that are not quite even. (1F1B and GPipe differ "
                    "a little too, where messages take time.)",
                    options().cluster));
    Table table{
        {"schedule", "time of a step", "most memory of a device", "messages a step"}, {}};
    const auto& runs = record().runs;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const RunReport& report = runs[runs.size() - names.size() + i].second;
        table.rows.push_back({names[i], time_text(report.makespan() / task_->steps),
                              bytes_text(report.most_held()),
                              count_text(report.messages_sent() / task_->steps)});
    }
    page.table(table);
    show_interleaved_pace(page);
    page.text(
        "(One device holds all layers, and with two replicas each device holds twice as "
        "many as with one: two pipelines of half as many stages, with an all-reduce of "
        "the gradients between them.)");
}

void PipelineLesson::train(Page& page) {
    const GptSizes& sizes = task_->sizes;
    page.text(fmt::format(
        "Now a model in earnest: a GPT of {} blocks, hidden size {}, {} heads, over "
        "sequences of {} of the text's {} different characters, {} sequences a step in "
        "{} micro-batches, {} steps of SGD with learning rate {} and momentum 0.9. Its "
        "{} layers (embeddings, blocks, norm, head) are cut into parts whose matrix "
        "products cost as even as can be. One program trains it by every schedule.",
        sizes.layers, sizes.block.hidden, sizes.block.heads, sizes.context,
        sizes.vocabulary, task_->batch, micro_batches_, task_->steps,
        task_->learning_rate, sizes.layer_count()));
    page.quote("pipeline-training");
    record_gpt_inputs(record(), *task_);
    Curves curves;
    const auto by = [&](const std::string& name, const Schedule& schedule, int replicas,
                        const std::string& variant) {
        curves.add(name, train_by(page, schedule, replicas, variant));
    };
    by("1 device", make_schedule("gpipe", {1, micro_batches_, 1}), 1, "gpt_1");
    for (const std::string& name : schedule_names()) {
        const int chunks = name == "interleaved" ? 2 : 1;
        if (chunks * ranks_ > sizes.layer_count()) continue;
        by(name, schedule(name, chunks), 1, name);
    }
    if (ranks_ % 2 == 0 && ranks_ > 2)
        by("1f1b, 2 replicas", make_schedule("1f1b", {ranks_ / 2, micro_batches_ / 2, 1}),
           2, "1f1b_replicas");
    if (has_numbers()) curves.show(page);
    show_costs(page, curves.names);
    const int stores =
        static_cast<int>(sizes.layers) * block_stores(1) + 2 * micro_batches_;
    check_values(page, "largest difference of a loss from one device's, at any step",
                 curves.widest_gap(),
                 loss_bound(options().dtype, stores, curves.losses.front()));
    if (!has_numbers()) return;
    page.text(
        "One curve. Every stage adds up its micro-batches' gradients in the same order, "
        "0, 1, 2, …, whichever schedule it follows, and each product has the same "
        "operands as on one device: so the simulator's bits are the same, and only the "
        "time differs. (With two replicas gradients are added up in another order, and "
        "with --set tied=1, where first and last stage share a table, so are those of "
        "the table: then the last digits differ.)");
}

}  // namespace lockstep::lessons
