#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/01_gradient_accumulation/gradient_accumulation.hpp"
#include "src/core/units.hpp"

namespace lockstep::lessons {

void GradientAccumulation::read_text(Page& page) {
    const std::shared_ptr<const LanguageTask> task = language_;
    page.text(fmt::format(
        "A model that predicts the next character from the {} before: "
        "embedding of {}, hidden layer of {}, softmax over the {} "
        "different characters of a text of {}. Each step takes {} rows "
        "from it; one device accumulates them in {} parts, {} devices take "
        "a part each.",
        task->sizes.context, task->sizes.width, task->sizes.hidden,
        task->sizes.vocabulary,
        count_text(static_cast<std::int64_t>(task->text.ids.size())),
        task->rows_per_step(), parts_, parts_));
    page.quote("training-loop");

    const RunReport alone =
        train(*make_cluster(options(), 1),
              language_training(
                  task, options(), [](int) { return 0; }, parts_),
              page.progress("one device", task->steps).get());
    Training training = language_training(
        task, options(), [](int rank) { return rank; }, 1);
    training.data_parallel = true;
    const RunReport together =
        train(*make_cluster(options(), parts_), training,
              page.progress("many devices", task->steps).get());
    record_variant(record(), "language_model_accumulation", alone);
    record_variant(record(), "language_model_data_parallel", together);
    record_language_inputs(record(), *task);
    record_initial(record(), "language_model", alone);

    const std::vector<double> one = losses(alone);
    const std::vector<double> many = losses(together);
    show_curve(page, one, many);
    double widest = 0;
    for (std::size_t step = 0; step < one.size(); ++step) {
        const double gap = std::abs(one[step] - many[step]);
        // A NaN stays, whatever comes after it.
        if (std::isnan(gap) || gap > widest) widest = gap;
    }
    check_values(page, "largest difference of the two losses at any step",
                 widest, 1e-4);
    const double entropy = unigram_entropy(task->text);
    double last = 0;
    const std::size_t window = std::min<std::size_t>(one.size(), 20);
    for (std::size_t i = one.size() - window; i < one.size(); ++i)
        last += one[i] / static_cast<double>(window);
    page.text(
        fmt::format("Drawn by frequency alone, a character of this text "
                    "carries {:.3f} nats: its unigram entropy. A model "
                    "below that has learnt from the characters before.",
                    entropy));
    if (task->steps >= 400)
        check_values(
            page, "mean loss of the last 20 steps over the unigram entropy",
            last / entropy, 0.9);
}

void GradientAccumulation::show_curve(Page& page,
                                      const std::vector<double>& alone,
                                      const std::vector<double>& together) {
    if (!has_numbers()) return;
    Table table{{"step", "one device", fmt::format("{} devices", parts_)},
                {}};
    for (std::size_t i = 0; i <= 8; ++i) {
        const std::size_t step = (alone.size() - 1) * i / 8;
        if (i > 0 && step == (alone.size() - 1) * (i - 1) / 8) continue;
        table.rows.push_back({std::to_string(step + 1),
                              fmt::format("{:.3f}", alone[step]),
                              fmt::format("{:.3f}", together[step])});
    }
    page.table(table);
}

}  // namespace lockstep::lessons
