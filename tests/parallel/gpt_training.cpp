#include "tests/parallel/gpt_training.hpp"

#include <algorithm>
#include <cmath>

#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/train_step.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

/// A step's tokens, and each one's successor.
std::pair<HostTensor, HostTensor> batch_of(const Lessons& lessons, int step) {
    const HostTensor tokens =
        ids_below({lessons.length + 1, lessons.batch}, lessons.sizes.vocabulary,
                  "tokens" + std::to_string(step));
    return {tokens.rows(0, lessons.length), tokens.rows(1, lessons.length)};
}

std::unique_ptr<Optimizer> make_optimizer(Module& model, bool adamw) {
    if (adamw)
        return std::make_unique<AdamW>(model.parameters(),
                                       AdamWOptions{.learning_rate = 1e-3});
    return std::make_unique<Sgd>(model.parameters(), SgdOptions{0.1, 0.9, 0});
}

/// Returns the losses; keeps the first step's gradients as "grad/NAME", and the values
/// after the last as "value/NAME".
std::vector<double> train(Rank& rank, Module& model, const Lessons& lessons,
                          const Loss& loss) {
    Device& device = rank.device();
    std::vector<double> losses;
    AllReduceSync sync(model.parameters());
    const auto optimizer = make_optimizer(model, lessons.adamw);
    for (int step = 0; step < lessons.steps; ++step) {
        const auto [ids, next] = batch_of(lessons, step);
        const MicroBatch batch{device.upload(ids), device.upload(next)};
        const Tensor share =
            train_step(device, model, loss, {&batch, 1}, sync, *optimizer);
        losses.push_back(device.peek(share).at(0));
        if (step == 0) keep_parameters(rank, model, "grad/", &Parameter::gradient);
    }
    keep_parameters(rank, model, "value/", &Parameter::value);
    return losses;
}

Trained trained_by(const std::vector<std::vector<double>>& losses, RunReport report,
                   bool numbers) {
    Trained trained;
    trained.losses = losses.front();
    trained.report = std::move(report);
    if (!numbers) return trained;
    for (const std::vector<double>& of_rank : losses)
        REQUIRE(of_rank == trained.losses);
    trained.first_gradients = wholes(trained.report, "grad/");
    trained.values = wholes(trained.report, "value/");
    return trained;
}

}  // namespace

Trained train_alone(const Lessons& lessons) {
    std::vector<std::vector<double>> losses(1);
    RunReport report = classroom(1, lessons.numbers)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model = make_gpt({device, lessons.dtype, 5, ""}, lessons.sizes);
        losses[0] = train(rank, *model, lessons, cross_entropy_loss);
    });
    return trained_by(losses, std::move(report), lessons.numbers);
}

Trained train_shared(int ranks, Regions kind, const Lessons& lessons) {
    std::vector<std::vector<double>> losses(static_cast<std::size_t>(ranks));
    RunReport report = classroom(ranks, lessons.numbers)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = regions(kind)(device, rank.world());
        const GptKit kit = tensor_parallel({}, *tp);
        const auto model = make_gpt({device, lessons.dtype, 5, ""}, lessons.sizes, kit);
        losses[static_cast<std::size_t>(rank.index())] =
            train(rank, *model, lessons, kit.loss(lessons.sizes));
    });
    return trained_by(losses, std::move(report), lessons.numbers);
}

double largest_difference(const std::map<std::string, HostTensor>& a,
                          const std::map<std::string, HostTensor>& b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (const auto& [name, tensor] : a) {
        const double here = relative_difference(tensor, b.at(name));
        if (!(here <= worst)) worst = here;
        if (std::isnan(worst)) return worst;
    }
    return worst;
}

}  // namespace lockstep::test
