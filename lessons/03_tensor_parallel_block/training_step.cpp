#include <fmt/format.h>

#include "lessons/03_tensor_parallel_block/tensor_parallel_lesson.hpp"
#include "src/core/units.hpp"

namespace lockstep::lessons {

namespace {

std::vector<double> losses(const RunReport& report) {
    return report.ranks.front().series.at("loss");
}

}  // namespace

RunReport TensorParallelLesson::train_on(Page& page, int ranks,
                                         Regions regions,
                                         const std::string& variant) {
    const RunReport report =
        train_gpt(*make_cluster(options(), ranks), *task_, options().dtype,
                  options().seed, regions,
                  page.progress(variant, task_->steps).get());
    record().runs.emplace_back(variant, report);
    if (!has_numbers()) return report;
    const WholeParameters whole = whole_gpt(*task_, ranks, regions);
    const auto keep = [&](NamedTensors& tensors, const std::string& name,
                          const std::string& prefix) {
        for (const auto& [parameter, tensor] :
             whole.put_together(report, prefix))
            tensors.insert_or_assign(name + "/" + prefix + parameter,
                                     tensor);
    };
    if (ranks == 1) keep(record().inputs, "gpt", "initial/");
    keep(record().outputs, variant, "grad/");
    keep(record().outputs, variant, "");
    const std::vector<double> curve = losses(report);
    record().outputs.insert_or_assign(
        variant + "/loss",
        HostTensor::of(Shape::flat(static_cast<std::int64_t>(curve.size())),
                       curve));
    return report;
}

Curves TensorParallelLesson::train_on_all(Page& page) {
    Curves curves;
    const auto on = [&](int ranks, Regions regions, const std::string& name,
                        const std::string& variant) {
        curves.add(name, losses(train_on(page, ranks, regions, variant)));
    };
    const std::string all = fmt::format("gpt_{}", ranks_);
    on(1, Regions::replicated, "1 device", "gpt_1");
    if (ranks_ % 2 == 0 && ranks_ > 2)
        on(2, Regions::replicated, "2 devices", "gpt_2");
    if (ranks_ == 1) return curves;
    on(ranks_, Regions::replicated, fmt::format("{} devices", ranks_), all);
    on(ranks_, Regions::sequence_parallel,
       fmt::format("{}, sequence parallel", ranks_), all + "_sequence");
    return curves;
}

void TensorParallelLesson::train(Page& page) {
    const GptSizes& sizes = task_->sizes;
    page.text(fmt::format(
        "Now all of it: a GPT of {} layers, hidden size {}, {} heads, over "
        "sequences of {} of the text's {} different characters, {} "
        "sequences a step, {} steps of SGD with learning rate {} and "
        "momentum "
        "0.9. One program trains it on one device and on many.",
        sizes.layers, sizes.block.hidden, sizes.block.heads, sizes.context,
        sizes.vocabulary, task_->batch, task_->steps,
        task_->learning_rate));
    page.quote("tensor-parallel-training");
    record_gpt_inputs(record(), *task_);

    const Curves curves = train_on_all(page);
    if (has_numbers()) curves.show(page);
    const std::vector<double>& one = curves.losses.front();
    check_values(page,
                 "largest difference of a loss from one device's, at any "
                 "step",
                 curves.widest_gap(),
                 options().dtype == DType::f64 ? 1e-11 : 1e-3);
    const double entropy = unigram_entropy(task_->text);
    page.text(
        fmt::format("Drawn by frequency alone, a character of this text "
                    "carries {:.3f} nats.",
                    entropy));
    constexpr int kEnough = 100;
    if (task_->steps >= kEnough)
        check_values(page, "last loss over that", one.back() / entropy,
                     0.95);
}

}  // namespace lockstep::lessons
