#include <fmt/format.h>

#include "lessons/01_gradient_accumulation/gradient_accumulation.hpp"

namespace lockstep::lessons {

RunReport GradientAccumulation::train_alone(
    const Regression& data, const std::vector<Share>& shares) {
    return train(
        *make_cluster(options(), 1),
        linear_training(data, linear_, [&](int) { return shares; }));
}

RunReport GradientAccumulation::train_together(
    const Regression& data, const std::vector<Share>& shares,
    double rate_factor, const LessonOptions* other_options) {
    LinearSettings settings = linear_;
    settings.learning_rate *= rate_factor;
    Training training = linear_training(data, settings, [&](int rank) {
        return std::vector<Share>{shares[rank]};
    });
    training.data_parallel = true;
    return train(
        *make_cluster(other_options ? *other_options : options(), parts_),
        training);
}

RunReport GradientAccumulation::train_wrongly(
    const Regression& data, const std::vector<Share>& shares) {
    const LessonOptions unwatched = options().without_full_check();
    return train_together(data, shares, 1, &unwatched);
}

void GradientAccumulation::accumulate(Page& page) {
    const auto rows = data_.rows();
    page.text(
        fmt::format("A batch of {} rows does not fit, say, but {} rows do. "
                    "So go through the batch in {} parts, one after "
                    "another, and let backward add each part's gradient to "
                    "what is there. Then take one step with the sum.",
                    rows, (rows + parts_ - 1) / parts_, parts_));
    page.quote("gradient-accumulation");
    page.text(
        fmt::format("The model is one linear layer, {} to {}, the loss the "
                    "mean squared error, the optimizer SGD with learning "
                    "rate {}, for {} epochs of one step each. Each part's "
                    "loss is its own mean, and the {} gradients are "
                    "summed: that is {} times the mean over the whole "
                    "batch.",
                    data_.inputs.shape()[1], data_.targets.shape()[1],
                    linear_.learning_rate, linear_.epochs, parts_, parts_));

    const double total = parts_;
    const RunReport reference =
        train_alone(data_, even_shares(rows, 1, total));
    accumulation_ = train_alone(data_, even_shares(rows, parts_, total));
    record().inputs.insert_or_assign("regression/inputs", data_.inputs);
    record().inputs.insert_or_assign("regression/targets", data_.targets);
    record_initial(record(), "regression", reference);
    record_variant(record(), "reference", reference);
    record_variant(record(), "accumulation", accumulation_);

    const std::vector<double> curve = losses(accumulation_);
    if (has_numbers())
        page.text(fmt::format(
            "The loss, summed over the parts, goes from {:.4f} to {:.4f}.",
            curve.front(), curve.back()));
    check_values(page,
                 "accumulation against the whole batch at once, largest "
                 "relative difference",
                 parameter_difference(reference, accumulation_), bound());
}

void GradientAccumulation::distribute(Page& page) {
    page.text(fmt::format(
        "Now give each part to a device of its own. All {} start from the "
        "same parameters, each computes the gradient of its part, and an "
        "all-reduce adds the gradients up, so that every device takes the "
        "same step. What accumulation adds up in time, data parallelism "
        "adds up in space; its code is accumulation's, and an all-reduce "
        "for each parameter.",
        parts_));
    page.quote("data-parallel");
    const RunReport together =
        train_wrongly(data_, even_shares(data_.rows(), parts_, parts_));
    record_variant(record(), "data_parallel", together);
    check_values(
        page,
        "data parallel against accumulation, largest relative difference",
        parameter_difference(accumulation_, together), bound());
    if (has_numbers())
        page.check(Check::equal(
            "devices whose parameters differ from device 0's in any bit",
            replicas_that_differ(together), 0));
    if (!has_numbers()) return;
    page.text(
        options().dtype == DType::f64
            ? "In f64 what is left is rounding: sums of the same numbers "
              "in another order. The mathematics is the same."
            : "Run this with --dtype f64: the difference shrinks by nine "
              "digits, as rounding does. What stayed would be a mistake in "
              "the mathematics.");
}

void GradientAccumulation::average(Page& page) {
    page.text(
        fmt::format("The sum of {} batch means is {} times their mean. "
                    "PyTorch's DistributedDataParallel divides by the "
                    "number of ranks; the code of step 1 does not. The "
                    "direction is the same, so the two agree when the mean "
                    "takes a learning rate {} times as large.",
                    parts_, parts_, parts_));
    const RunReport mean =
        train_together(data_, even_shares(data_.rows(), parts_, 1), parts_);
    check_values(
        page,
        fmt::format("mean with {} times the learning rate against the sum",
                    parts_),
        parameter_difference(accumulation_, mean), bound());

    const Regression data =
        options().data ? data_ : regression_of(options(), 250 * parts_);
    page.text(
        fmt::format("Next {} rows on {} devices, dealt out evenly, "
                    "averaged, against one device that takes the whole "
                    "batch at once.",
                    data.rows(), parts_));
    const RunReport whole =
        train_alone(data, even_shares(data.rows(), 1, 1));
    const RunReport shared =
        train_together(data, even_shares(data.rows(), parts_, 1));
    check_values(page,
                 fmt::format("{} rows over {} devices against one",
                             data.rows(), parts_),
                 parameter_difference(whole, shared), bound());
    if (parts_ > 1 && data.rows() > parts_) average_unequal(page, data);
}

namespace {

/// Shares in the proportion 1 : 2 : 3 : …
std::vector<Share> unequal_shares(std::int64_t rows, int parts,
                                  bool by_rows) {
    std::vector<Share> shares;
    std::int64_t begin = 0;
    const std::int64_t spare = rows - parts;
    const std::int64_t all = std::int64_t{parts} * (parts + 1) / 2;
    for (int part = 0; part < parts; ++part) {
        const std::int64_t upto = std::int64_t{part + 1} * (part + 2) / 2;
        const std::int64_t end = part + 1 + spare * upto / all;
        const double weight = by_rows ? static_cast<double>(end - begin) /
                                            static_cast<double>(rows)
                                      : 1.0 / parts;
        shares.push_back({begin, end - begin, weight});
        begin = end;
    }
    return shares;
}

}  // namespace

void GradientAccumulation::average_unequal(Page& page,
                                           const Regression& data) {
    const std::vector<Share> shares =
        unequal_shares(data.rows(), parts_, true);
    std::string sizes;
    for (const Share& share : shares)
        sizes +=
            fmt::format("{}{}", sizes.empty() ? "" : ", ", share.count);
    page.text(
        fmt::format("Shares need not be equal. With {} rows a device, the "
                    "mean of the devices' means counts a row on the small "
                    "share for more than one on the large share. Weighted "
                    "by B_i / B, each row counts the same.",
                    sizes));
    page.verbatim(
        "  mean over all rows = sum over devices of (B_i / B) * (mean over "
        "B_i rows)");
    const RunReport whole =
        train_alone(data, even_shares(data.rows(), 1, 1));
    const RunReport weighted = train_together(data, shares);
    const RunReport unweighted =
        train_wrongly(data, unequal_shares(data.rows(), parts_, false));
    check_values(page, "unequal shares, weighted mean, against one device",
                 parameter_difference(whole, weighted), bound());
    if (has_numbers())
        page.text(fmt::format(
            "The mean of means ends {:.1e} away, relatively: no rounding. "
            "Nothing hangs and no figure looks odd; lockstep's checker "
            "finds "
            "it all the same, as it does the sum that was meant as a mean "
            "(lessons/faults/F28.md and F21.md).",
            parameter_difference(whole, unweighted)));
}

}  // namespace lockstep::lessons
