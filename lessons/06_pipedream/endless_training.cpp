#include "lessons/06_pipedream/endless_training.hpp"

#include <cmath>
#include <utility>

#include "src/nn/optimizer.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/pipeline_gpt.hpp"

namespace lockstep::lessons {

PartedTraining stack_training(const StackOptions& options, int stages) {
    PartedTraining training;
    training.parts = stages;
    training.make_part = [=](Device& device, int part) {
        return stack_part({device, options.dtype, options.seed, ""}, part, kStackLayers);
    };
    training.make_batches = [=](Device& device, int count, double weight) {
        return stack_batches(device, options, count, weight);
    };
    training.boundary = stack_boundary(options.dtype);
    training.optimizer = {0.5, 0, 0};
    return training;
}

PartedTraining gpt_training(const GptTask& task, int stages) {
    const GptSizes& sizes = task.sizes;
    const auto cut = cut_layers(gpt_layer_flops(sizes, sizes.context, 1), stages);
    PartedTraining training;
    training.parts = stages;
    training.make_part = [&task, cut](Device& device, int part) {
        const LayerRange& layers = cut[static_cast<std::size_t>(part)];
        return make_gpt_layers(task.init(device), task.sizes, layers.first, layers.last);
    };
    training.make_batches = [&task](Device& device, int count, double weight) {
        const int each = static_cast<int>(task.batch);
        std::vector<MicroBatch> batches;
        batches.reserve(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i)
            batches.push_back(upload_tokens(device, task, i / each, i % each, 1, weight));
        return batches;
    };
    training.boundary = gpt_boundary(sizes, task.dtype);
    training.loss = cross_entropy_loss;
    training.optimizer = task.optimizer();
    return training;
}

double PartedTraining::decay(int part) const {
    constexpr double kKept = 0.1;
    const int updates = parts - 1 - part;
    return updates > 0 ? std::pow(kKept, 1.0 / updates) : 0;
}

Schedule schedule_of(const WeightRule& rule, int micro_batches) {
    return make_schedule(rule.schedule, {rule.stages, micro_batches, 1, rule.per_update});
}

namespace {

/// The loss of a micro-batch without its weight in the update.
void keep_loss(Rank& rank, const Tensor& weighted, double weight) {
    rank.keep_value("loss", rank.device().peek(weighted).at(0) / weight);
}

void keep_values(Rank& rank, Module& part) {
    keep_parameters(rank, part.parameters(), "", &Parameter::value);
}

}  // namespace

// lesson: endless-program
RunReport train_endless(Cluster& cluster, const WeightRule& rule,
                        const PartedTraining& training, int micro_batches,
                        const Advance& advance) {
    const PipelinePlan plan(schedule_of(rule, micro_batches));
    const double weight = 1.0 / rule.per_update;
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto part = training.make_part(device, rank.index());
        const auto optimizer =
            make_optimizer<Sgd>(part->parameters(), training.optimizer);
        Pipeline pipeline(device, rank.world(), plan, {part.get()}, training.boundary);
        pipeline.update_by({optimizer.get()});
        pipeline.estimate_by(training.decay(rank.index()));
        pipeline.keep_losses();
        pipeline.after_update([&](int /*chunk*/, int version) {
            if (advance && rank.index() == 0) advance(version);
        });
        keep_parameters(rank, part->parameters(), "initial/", &Parameter::value);
        const auto batches = training.make_batches(device, micro_batches, weight);
        pipeline.run(training.loss, batches);
        for (const Tensor& loss : pipeline.losses())
            if (loss) keep_loss(rank, loss, weight);
        keep_values(rank, *part);
    });
}
// lesson: end

namespace {

/// A part, and all versions that its weights have had.
class VersionedPart {
  public:
    VersionedPart(Device& device, std::unique_ptr<Module> part, const SgdOptions& options,
                  double decay)
        : device_(device),
          part_(std::move(part)),
          optimizer_(make_optimizer<Sgd>(part_->parameters(), options)),
          decay_(decay) {
        versions_.push_back({copies(), {}});
        zero_gradients(*part_);
    }

    Module& module() { return *part_; }

    /// Runs `pass` with the weights that are read in the place of the newest.
    template <typename Pass>
    Tensor with(const WeightsRead& read, Pass&& pass) {
        std::vector<Tensor> weights = weights_of(read);
        exchange(weights);
        Tensor result = pass(*part_);
        exchange(weights);
        return result;
    }

    double gradient_norm() const {
        double squares = 0;
        for (const Parameter* parameter : part_->parameters()) {
            const HostTensor gradient = device_.peek(parameter->gradient);
            for (std::int64_t i = 0; i < gradient.elements(); ++i)
                squares += gradient.at(i) * gradient.at(i);
        }
        return std::sqrt(squares);
    }

    /// Steps from the newest weights, which become a version of their own.
    void update() {
        optimizer_->step();
        zero_gradients(*part_);
        versions_.push_back({copies(), {}});
        const Version& before = versions_[versions_.size() - 2];
        Version& now = versions_.back();
        // average = decay average + (1 - decay) (now - before)
        for (std::size_t i = 0; i < now.weights.size(); ++i) {
            const Tensor average =
                device_.empty(now.weights[i].shape(), now.weights[i].dtype());
            if (before.average.empty())
                device_.fill(average, 0);
            else
                device_.copy(average, before.average[i]);
            device_.scale(average, decay_);
            device_.add(average, now.weights[i], 1 - decay_);
            device_.add(average, before.weights[i], decay_ - 1);
            now.average.push_back(average);
        }
    }

  private:
    struct Version {
        std::vector<Tensor> weights;
        std::vector<Tensor> average;  ///< of the steps up to it; none before the first
    };

    std::vector<Tensor> copies() {
        std::vector<Tensor> made;
        for (const Parameter* parameter : part_->parameters()) {
            made.push_back(device_.empty(parameter->shape(), parameter->dtype()));
            device_.copy(made.back(), parameter->value);
        }
        return made;
    }

    std::vector<Tensor> weights_of(const WeightsRead& read) {
        const Version& version = versions_.at(static_cast<std::size_t>(read.version));
        if (read.ahead == 0 || version.average.empty()) return version.weights;
        std::vector<Tensor> made;
        for (std::size_t i = 0; i < version.weights.size(); ++i) {
            const Tensor& weight = version.weights[i];
            made.push_back(device_.empty(weight.shape(), weight.dtype()));
            device_.copy(made.back(), weight);
            device_.add(made.back(), version.average[i], read.ahead);
        }
        return made;
    }

    void exchange(std::vector<Tensor>& weights) {
        std::size_t i = 0;
        for (Parameter* parameter : part_->parameters())
            std::swap(parameter->value, weights[i++]);
    }

    Device& device_;
    std::unique_ptr<Module> part_;
    std::unique_ptr<Optimizer> optimizer_;
    double decay_;
    std::vector<Version> versions_;
};

// lesson: versions-alone
/// Micro-batch i goes forward and back through all parts, each with the
/// weights that the rule names. Gives its loss.
Tensor pass_by_rule(Device& device, std::vector<VersionedPart>& parts,
                    const WeightRule& rule, const Loss& loss, const MicroBatch& batch,
                    int i) {
    std::vector<Saved> saved(parts.size());
    Tensor y = batch.input;
    for (int s = 0; s < rule.stages; ++s)
        y = parts[s].with(rule.forward(s, i),
                          [&](Module& part) { return part.forward(y, saved[s]); });
    const LossResult result = loss(device, y, batch.target, batch.weight);
    Tensor dy = result.gradient;
    for (int s = rule.stages; s-- > 0;)
        dy = parts[s].with(rule.backward(s, i),
                           [&](Module& part) { return part.backward(dy, saved[s]); });
    return result.loss;
}
// lesson: end

}  // namespace

RunReport train_alone(Cluster& cluster, const WeightRule& rule,
                      const PartedTraining& training, int micro_batches) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        std::vector<VersionedPart> parts;
        parts.reserve(static_cast<std::size_t>(rule.stages));
        for (int s = 0; s < rule.stages; ++s)
            parts.emplace_back(device, training.make_part(device, s), training.optimizer,
                               training.decay(s));
        parts.front().module().set_input_gradient(false);
        const double weight = 1.0 / rule.per_update;
        const auto batches = training.make_batches(device, micro_batches, weight);
        for (int i = 0; i < micro_batches; ++i) {
            keep_loss(rank,
                      pass_by_rule(device, parts, rule, training.loss, batches[i], i),
                      weight);
            for (VersionedPart& part : parts) {
                if (i == 0) rank.keep_value("norm", part.gradient_norm());
                if ((i + 1) % rule.per_update == 0) part.update();
            }
        }
        for (VersionedPart& part : parts)
            keep_values(rank, part.module());
    });
}

}  // namespace lockstep::lessons
